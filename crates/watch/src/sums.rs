//! Sums over connections that are open and those that closed: in all, and by process, peer, port and cgroup.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::AddAssign;
use std::sync::Arc;

use sys::owners::Process;
use throughput::live::Moment;

/// What connections carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Sum {
    /// Connections.
    pub connections: u64,
    /// Payload that the peers acknowledged.
    pub acked_bytes: u64,
    /// Payload received in order.
    pub received_bytes: u64,
    /// Bytes that left, headers and retransmissions counted.
    pub wire_out_bytes: u64,
    /// Bytes that came, headers counted.
    pub wire_in_bytes: u64,
    /// Segments with data that left.
    pub segments_sent: u64,
    /// Of these, retransmissions.
    pub segments_retransmitted: u64,
}

impl Sum {
    /// What a moment brought; counts as no connection.
    pub const fn of(moment: &Moment) -> Self {
        Self {
            connections: 0,
            acked_bytes: moment.acked_bytes,
            received_bytes: moment.received_bytes,
            wire_out_bytes: moment.wire_out_bytes,
            wire_in_bytes: moment.wire_in_bytes,
            segments_sent: moment.segments_sent,
            segments_retransmitted: moment.segments_retransmitted,
        }
    }
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Self) {
        let add = |a: &mut u64, b: u64| *a = a.saturating_add(b);
        add(&mut self.connections, other.connections);
        add(&mut self.acked_bytes, other.acked_bytes);
        add(&mut self.received_bytes, other.received_bytes);
        add(&mut self.wire_out_bytes, other.wire_out_bytes);
        add(&mut self.wire_in_bytes, other.wire_in_bytes);
        add(&mut self.segments_sent, other.segments_sent);
        add(
            &mut self.segments_retransmitted,
            other.segments_retransmitted,
        );
    }
}

/// What connections are summed up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The process that has the socket.
    Process,
    /// The peer's address.
    Peer,
    /// The port that serves: the listener's where it is here, else the peer's.
    Port,
    /// The cgroup that the socket was made in.
    Cgroup,
}

impl By {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Process, Self::Peer, Self::Port, Self::Cgroup];

    const fn index(self) -> usize {
        match self {
            Self::Process => 0,
            Self::Peer => 1,
            Self::Port => 2,
            Self::Cgroup => 3,
        }
    }

    /// Name as in `--by`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Peer => "peer",
            Self::Port => "port",
            Self::Cgroup => "cgroup",
        }
    }
}

/// What the connections of a group share.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A process.
    Process(Arc<Process>),
    /// A peer.
    Peer(IpAddr),
    /// A port.
    Port(u16),
    /// A cgroup.
    Cgroup(u64),
    /// It is not known: the connection was too short, or belongs to another user.
    Unknown,
    /// More than there is room for.
    Others,
}

/// Connections that share something.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Group {
    /// Those that are open now.
    pub open: Sum,
    /// Those that closed since the start.
    pub closed: Sum,
    /// Of all of them, in the last interval.
    pub recent: Sum,
}

/// What has closed, by every kind of key.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    pub(crate) total: Sum,
    /// In the interval that is not over.
    pub(crate) recent: Sum,
    by: [HashMap<Key, Gone>; 4],
    interval: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Gone {
    total: Sum,
    recent: Sum,
    interval: u64,
}

impl Closed {
    /// Begins the next interval.
    pub(crate) fn begin_interval(&mut self) {
        self.interval += 1;
        self.recent = Sum::default();
    }

    /// Counts one that closed: all it carried since the start, and of this the last interval's.
    pub(crate) fn add(&mut self, keys: [Key; 4], total: Sum, recent: Sum) {
        self.total += total;
        self.recent += recent;
        for (map, key) in self.by.iter_mut().zip(keys) {
            let room = map.len() < KEYS_MAX || map.contains_key(&key);
            let gone = map.entry(if room { key } else { Key::Others }).or_default();
            if gone.interval != self.interval {
                (gone.interval, gone.recent) = (self.interval, Sum::default());
            }
            gone.total += total;
            gone.recent += recent;
        }
    }

    /// The groups of what closed.
    pub(crate) fn groups(&self, by: By) -> HashMap<Key, Group> {
        let recent = |gone: &Gone| match gone.interval == self.interval {
            true => gone.recent,
            false => Sum::default(),
        };
        let each = self.by[by.index()].iter();
        each.map(|(key, gone)| {
            let group = Group {
                closed: gone.total,
                recent: recent(gone),
                ..Group::default()
            };
            (key.clone(), group)
        })
        .collect()
    }
}

/// Peers can make ports and addresses grow without end: what comes beyond counts as [`Key::Others`]. Some 2 MB at most.
const KEYS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    fn one(bytes: u64) -> Sum {
        Sum {
            connections: 1,
            acked_bytes: bytes,
            ..Sum::default()
        }
    }

    fn keys(port: u16) -> [Key; 4] {
        [Key::Unknown, Key::Unknown, Key::Port(port), Key::Unknown]
    }

    #[test]
    fn what_closed_keeps_its_bytes_by_port_and_the_last_interval_ends() {
        let mut closed = Closed::default();
        closed.begin_interval();
        closed.add(keys(80), one(5), one(3));
        closed.add(keys(80), one(7), one(7));
        let group = closed.groups(By::Port)[&Key::Port(80)];
        assert_eq!(
            (group.closed.acked_bytes, group.recent.acked_bytes),
            (12, 10)
        );
        closed.begin_interval();
        let group = closed.groups(By::Port)[&Key::Port(80)];
        assert_eq!(
            (group.closed.connections, group.recent),
            (2, Sum::default())
        );
        assert_eq!(closed.total.acked_bytes, 12);
    }

    #[test]
    fn keys_beyond_the_bound_are_one_group_and_no_byte_is_lost() {
        let mut closed = Closed::default();
        let count = u16::try_from(KEYS_MAX).unwrap();
        (0..count + 2).for_each(|port| closed.add(keys(port), one(1), one(1)));
        let groups = closed.groups(By::Port);
        assert_eq!(groups.len(), KEYS_MAX + 1);
        assert_eq!(groups[&Key::Others].closed.acked_bytes, 2);
        // One that is there still grows.
        closed.add(keys(0), one(1), one(1));
        assert_eq!(closed.groups(By::Port)[&Key::Port(0)].closed.acked_bytes, 2);
    }
}
