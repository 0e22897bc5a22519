//! Every connection, by the kernel's cookie: what it has carried, what happened since the last dump, what limits it.
//!
//! **Order.** A dump is put in whole before the close events that came meanwhile, so no event brings back what the dump has not yet
//! lost. A connection that a dump lacks may have its event still on the way; it is given one more dump before it counts as
//! gone without one.
//!
//! **Sums** are of what was carried since the start of watching: of a connection that the first dump has, less what it had by then.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use sys::owners::Process;
use throughput::live::{self, Moment, Surroundings};
use units::{Bytes, Duration, Instant};
use wire::inet_diag::{Memory, Name, Record, state};
use wire::tcp_info::TcpInfo;

use crate::sums::{By, Closed, Group, Key, Sum};

/// A connection's identity: cookies are of one kernel, and namespaces are numbered by who watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// Number of its network namespace; 0 is our own.
    pub namespace: u16,
    /// The kernel's cookie.
    pub cookie: u64,
}

/// A connection that was open at the last dump.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Who it is.
    pub id: Id,
    /// Own address.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// State, one of [`state`].
    pub state: u8,
    /// Owner's user.
    pub uid: u32,
    /// Inode of its file; 0 when nobody has it open any more.
    pub inode: u32,
    /// Cgroup of cgroup v2.
    pub cgroup: Option<u64>,
    /// Congestion control.
    pub congestion: Name,
    /// Its buffers.
    pub memory: Option<Memory>,
    /// Received and not read.
    pub unread_bytes: u32,
    /// Whose it is, once that was found.
    pub process: Option<Arc<Process>>,
    /// Counters of the last dump.
    pub info: TcpInfo,
    /// What happened up to the last dump.
    pub moment: Moment,
    /// All that it carried since the start of watching.
    pub since: Sum,
    /// First seen.
    pub seen: Instant,
    /// How long it was idle when first seen: it is older than that.
    pub older: Duration,
    /// It was there before the watching began, so its age is a least.
    pub was_there: bool,
    /// This end was connected to: its port is a listener's.
    pub incoming: bool,
    /// When the last dump found it.
    last: Instant,
    dump: u64,
    window_max: u64,
    windows: [u32; WINDOWS],
}

/// What a dump changed of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    New,
    /// Some counter, buffer or state has changed.
    Changed,
    /// Nothing but ages.
    Same,
    /// No connection: a listener, or without counters.
    Other,
}

/// How much was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Dumps taken.
    pub dumps: u64,
    /// Connections that were seen for the first time after the first dump.
    pub opened: u64,
    /// Connections whose close event came.
    pub closed: u64,
    /// Connections that were gone without an event: their last bytes are missing.
    pub vanished: u64,
    /// Times that close events were lost.
    pub gaps: u64,
    /// Dumps during which the list changed so that some may be missing.
    pub partial_dumps: u64,
}

/// All connections.
#[derive(Debug, Default)]
pub struct Table {
    connections: HashMap<Id, Connection>,
    closed: Closed,
    counts: Counts,
    now: Instant,
    before: Instant,
    dump: u64,
    listeners: HashSet<(u16, u16)>,
    /// Processes by listening port and by peer: whose a connection is that no dump has seen.
    likely: HashMap<(u16, Place), Arc<Process>>,
    /// Readings of those whose details somebody looks at.
    followed: HashMap<Id, VecDeque<(Instant, TcpInfo)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Listener(u16),
    Peer(SocketAddr),
}

impl Table {
    /// Begins a dump that was taken at `now`.
    pub fn begin(&mut self, now: Instant) {
        self.dump += 1;
        self.counts.dumps += 1;
        (self.before, self.now) = (self.now, now);
        self.closed.begin_interval();
    }

    /// Puts in a socket of the dump.
    pub fn observe(&mut self, namespace: u16, record: &Record) -> Change {
        if record.state == state::LISTEN {
            if self.listeners.len() < LISTENERS_MAX {
                self.listeners.insert((namespace, record.local.port()));
            }
            return Change::Other;
        }
        let Some(info) = record.info else {
            return Change::Other;
        };
        let id = Id {
            namespace,
            cookie: record.cookie,
        };
        let (now, dump) = (self.now, self.dump);
        let change = match self.connections.get_mut(&id) {
            Some(known) => known.update(record, &info, now, dump),
            None => {
                let was_there = dump == 1;
                self.counts.opened += u64::from(!was_there);
                let incoming = self.listeners.contains(&(namespace, record.local.port()));
                let new = Connection::new(id, record, &info, now, dump, was_there, incoming);
                self.connections.insert(id, new);
                Change::New
            }
        };
        self.remember(id, info);
        change
    }

    /// Keeps a reading of a connection that is followed.
    fn remember(&mut self, id: Id, info: TcpInfo) {
        if let Some(history) = self.followed.get_mut(&id) {
            history.truncate(HISTORY_MAX - 1);
            history.push_front((self.now, info));
        }
    }

    /// Takes it that all that the dump before had and this one has not are as they were: for recordings, which leave those out.
    pub fn unchanged(&mut self) {
        let (now, dump) = (self.now, self.dump);
        let mut same = Vec::new();
        for known in self.connections.values_mut().filter(|c| c.dump + 1 == dump) {
            known.stay(now, dump);
            same.push((known.id, known.info));
        }
        for (id, info) in same {
            self.remember(id, info);
        }
    }

    /// Ends the dump: who was missing twice is gone. Returns those.
    pub fn finish(&mut self, whole: bool) -> Vec<Id> {
        self.counts.partial_dumps += u64::from(!whole);
        if !whole {
            let dump = self.dump;
            self.connections.values_mut().for_each(|c| c.dump = dump);
            return Vec::new();
        }
        let missing = self.connections.values().filter(|c| c.dump + 1 < self.dump);
        let gone: Vec<Id> = missing.map(|c| c.id).collect();
        for id in &gone {
            self.vanish(*id);
        }
        gone
    }

    /// Counts a connection that is gone without a close event.
    pub fn vanish(&mut self, id: Id) {
        let Some(known) = self.connections.remove(&id) else {
            return;
        };
        self.counts.vanished += 1;
        self.followed.remove(&id);
        let sum = Sum {
            connections: 1,
            ..known.since
        };
        self.closed.add(self.keys(&known), sum, Sum::default());
    }

    /// Puts in the last counters of a socket that closed.
    pub fn close(&mut self, namespace: u16, record: &Record) {
        // A listener has no peer.
        let Some(info) = record.info.filter(|_| record.remote.port() != 0) else {
            return;
        };
        self.counts.closed += 1;
        let id = Id {
            namespace,
            cookie: record.cookie,
        };
        self.followed.remove(&id);
        let ipv6 = record.local.is_ipv6();
        let around = Surroundings::default();
        let span = self.now.saturating_since(self.before);
        let (keys, mut total, recent) = match self.connections.remove(&id) {
            Some(known) => {
                let last = live::moment(Some(&known.info), &info, span, &around, ipv6);
                let mut total = known.since;
                total += Sum::of(&last);
                (self.keys(&known), total, Sum::of(&last))
            }
            None => {
                let whole = Sum::of(&live::moment(None, &info, span, &around, ipv6));
                let incoming = self.listeners.contains(&(namespace, record.local.port()));
                let mut short =
                    Connection::new(id, record, &info, self.now, self.dump, false, incoming);
                short.process = self.likely_process(&short);
                (self.keys(&short), whole, whole)
            }
        };
        total.connections = 1;
        self.closed.add(
            keys,
            total,
            Sum {
                connections: 1,
                ..recent
            },
        );
    }

    /// Close events were lost.
    pub const fn lost(&mut self) {
        self.counts.gaps += 1;
    }

    /// Says whose the sockets with these inodes are.
    pub fn owned(&mut self, namespace: u16, owners: &HashMap<u32, Arc<Process>>) {
        if owners.is_empty() {
            return;
        }
        for known in self.connections.values_mut() {
            if known.id.namespace != namespace || known.process.is_some() {
                continue;
            }
            if let Some(process) = owners.get(&known.inode) {
                known.process = Some(Arc::clone(process));
                let place = match known.incoming {
                    true => Place::Listener(known.local.port()),
                    false => Place::Peer(known.remote),
                };
                if self.likely.len() < LIKELY_MAX {
                    self.likely.insert((namespace, place), Arc::clone(process));
                }
            }
        }
    }

    /// Says whose a listening port is.
    pub fn listens(&mut self, namespace: u16, port: u16, process: &Arc<Process>) {
        if self.likely.len() < LIKELY_MAX {
            let place = (namespace, Place::Listener(port));
            self.likely.insert(place, Arc::clone(process));
        }
    }

    /// Keeps the readings of these connections from now on, of others no longer; 64 at most.
    pub fn follow(&mut self, ids: impl Iterator<Item = Id>) {
        let wanted: Vec<Id> = ids.take(FOLLOWED_MAX).collect();
        self.followed.retain(|id, _| wanted.contains(id));
        for id in wanted {
            let Some(known) = self.connections.get(&id) else {
                continue;
            };
            self.followed
                .entry(id)
                .or_insert_with(|| VecDeque::from([(known.last, known.info)]));
        }
    }

    /// Readings of a followed connection, the newest first.
    pub fn history(&self, id: Id) -> impl Iterator<Item = &(Instant, TcpInfo)> {
        self.followed.get(&id).into_iter().flatten()
    }

    /// Those that the last dump had, in no order.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.connections.values()
    }

    /// One of them.
    pub fn get(&self, id: Id) -> Option<&Connection> {
        self.connections.get(&id)
    }

    /// When the last dump was taken.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Time between the last two dumps; zero before the second.
    pub fn interval(&self) -> Duration {
        match self.counts.dumps {
            0 | 1 => Duration::ZERO,
            _ => self.now.saturating_since(self.before),
        }
    }

    /// How much was seen.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Everything since the start: open and closed.
    pub fn total(&self) -> Group {
        let mut group = Group {
            closed: self.closed.total,
            recent: self.closed.recent,
            ..Group::default()
        };
        self.connections.values().for_each(|c| group.add(c));
        group
    }

    /// Everything since the start, by what connections share, of those that `filter` lets through and of all that closed.
    pub fn groups(&self, by: By, filter: impl Fn(&Connection) -> bool) -> HashMap<Key, Group> {
        let mut groups = self.closed.groups(by);
        for known in self.connections.values().filter(|c| filter(c)) {
            groups.entry(self.key(known, by)).or_default().add(known);
        }
        groups
    }

    /// What a connection shares with others.
    pub fn key(&self, known: &Connection, by: By) -> Key {
        match by {
            By::Process => {
                let process = known.process.as_ref();
                process.map_or(Key::Unknown, |p| Key::Process(Arc::clone(p)))
            }
            By::Peer => Key::Peer(known.remote.ip()),
            By::Port if known.incoming => Key::Port(known.local.port()),
            By::Port => Key::Port(known.remote.port()),
            By::Cgroup => known.cgroup.map_or(Key::Unknown, Key::Cgroup),
        }
    }

    fn keys(&self, known: &Connection) -> [Key; 4] {
        By::ALL.map(|by| self.key(known, by))
    }

    fn likely_process(&self, known: &Connection) -> Option<Arc<Process>> {
        let place = match known.incoming {
            true => Place::Listener(known.local.port()),
            false => Place::Peer(known.remote),
        };
        self.likely.get(&(known.id.namespace, place)).cloned()
    }
}

impl Group {
    fn add(&mut self, known: &Connection) {
        self.open += Sum {
            connections: 1,
            ..known.since
        };
        // At first sight the numbers are of its life, not of the interval.
        if !known.moment.lifetime {
            self.recent += Sum::of(&known.moment);
        }
    }
}

impl Connection {
    fn new(
        id: Id,
        record: &Record,
        info: &TcpInfo,
        now: Instant,
        dump: u64,
        was_there: bool,
        incoming: bool,
    ) -> Self {
        let idle = [
            info.last_data_sent_ms,
            info.last_data_recv_ms,
            info.last_ack_recv_ms,
        ];
        let idle = idle.into_iter().max().unwrap_or(0).min(u64::from(u32::MAX));
        let mut new = Self {
            id,
            local: record.local,
            remote: record.remote,
            state: record.state,
            uid: record.uid,
            inode: record.inode,
            cgroup: record.cgroup,
            congestion: record.congestion,
            memory: record.memory,
            unread_bytes: record.unread_bytes,
            process: None,
            info: *info,
            moment: Moment::default(),
            since: Sum::default(),
            seen: now,
            older: Duration::from_ms(idle),
            was_there,
            incoming,
            last: now,
            dump,
            window_max: 0,
            windows: [0; WINDOWS],
        };
        new.remember_window(info);
        let around = new.surroundings();
        new.moment = live::moment(None, info, Duration::ZERO, &around, new.local.is_ipv6());
        if !was_there {
            new.since = Sum::of(&new.moment);
        }
        new
    }

    fn update(&mut self, record: &Record, info: &TcpInfo, now: Instant, dump: u64) -> Change {
        let span = now.saturating_since(self.last);
        let same = self.is_same(record, info);
        self.state = record.state;
        // A socket keeps its user when its file is closed, not its inode.
        if record.inode != 0 {
            self.inode = record.inode;
        }
        self.memory = record.memory;
        self.congestion = record.congestion;
        self.unread_bytes = record.unread_bytes;
        self.remember_window(info);
        let around = self.surroundings();
        self.moment = live::moment(Some(&self.info), info, span, &around, self.local.is_ipv6());
        self.since += Sum::of(&self.moment);
        self.info = *info;
        (self.last, self.dump) = (now, dump);
        if same { Change::Same } else { Change::Changed }
    }

    /// Nothing happened since the last dump.
    fn stay(&mut self, now: Instant, dump: u64) {
        let span = now.saturating_since(self.last);
        let around = self.surroundings();
        let info = self.info;
        self.moment = live::moment(Some(&info), &info, span, &around, self.local.is_ipv6());
        (self.last, self.dump) = (now, dump);
    }

    fn is_same(&self, record: &Record, info: &TcpInfo) -> bool {
        let ageless = |info: &TcpInfo| TcpInfo {
            last_data_sent_ms: 0,
            last_data_recv_ms: 0,
            last_ack_recv_ms: 0,
            ..*info
        };
        self.state == record.state
            && self.unread_bytes == record.unread_bytes
            && self.memory == record.memory
            && ageless(&self.info) == ageless(info)
    }

    fn remember_window(&mut self, info: &TcpInfo) {
        self.window_max = self.window_max.max(info.snd_wnd_bytes);
        self.windows.rotate_right(1);
        self.windows[0] = u32::try_from(info.snd_wnd_bytes).unwrap_or(u32::MAX);
        if self.moment.span == Duration::ZERO && self.windows[1] == 0 {
            self.windows = [self.windows[0]; WINDOWS];
        }
    }

    fn surroundings(&self) -> Surroundings {
        let least = self.windows.iter().min().copied().unwrap_or(0);
        Surroundings {
            unread: Bytes::new(u64::from(self.unread_bytes)),
            peer_window_max: Bytes::new(self.window_max),
            peer_window_min: Bytes::new(u64::from(least)),
            queued: Bytes::new(u64::from(self.memory.map_or(0, |m| m.queued_bytes))),
            send_buffer: Bytes::new(u64::from(self.memory.map_or(0, |m| m.send_buffer_bytes))),
        }
    }

    /// How long it has lived, as far as is known.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_since(self.seen) + self.older
    }
}

/// Readings of the peer's window that are looked back at.
const WINDOWS: usize = 8;
/// Readings that are kept of a followed connection: ten minutes of one a second, some 270 kB.
const HISTORY_MAX: usize = 600;
/// Connections that are followed at once.
const FOLLOWED_MAX: usize = 64;
/// A host has 65,535 ports; ports of other namespaces come on top.
const LISTENERS_MAX: usize = 100_000;
/// Places whose process is remembered for connections too short to ask.
const LIKELY_MAX: usize = 4_096;

#[cfg(test)]
mod tests;
