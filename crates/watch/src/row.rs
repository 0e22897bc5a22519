//! Connections as rows: which are shown, in what order, and their keys in JSON.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Serialize;
use throughput::shares::Shares;
use units::Instant;
use wire::inet_diag::state;

use crate::filter::Filter;
use crate::names::Names;
use crate::session::Session;
use crate::sums::{By, Group, Key, Sum};
use crate::table::{Connection, Counts};

/// What rows are sorted by; the largest come first, and names from A to Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Rates of both directions together.
    #[default]
    Rate,
    /// Rate of what leaves.
    Out,
    /// Rate of what comes.
    In,
    /// The limit, by name, then its share.
    Limit,
    /// Smoothed round trip over the smallest.
    Rtt,
    /// Share of segments that were retransmitted.
    Retransmitted,
    /// Time since it was first seen.
    Age,
    /// Process name.
    Process,
    /// Address of the peer.
    Peer,
}

impl Sort {
    /// In the order of the columns.
    pub const ALL: [Self; 9] = [
        Self::Rate,
        Self::Process,
        Self::Peer,
        Self::Out,
        Self::In,
        Self::Limit,
        Self::Rtt,
        Self::Retransmitted,
        Self::Age,
    ];

    /// Name as in `--sort`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Out => "out",
            Self::In => "in",
            Self::Limit => "limit",
            Self::Rtt => "rtt",
            Self::Retransmitted => "retr",
            Self::Age => "age",
            Self::Process => "process",
            Self::Peer => "peer",
        }
    }

    /// The one so many columns on, round the end.
    #[must_use]
    pub fn step(self, forward: bool) -> Self {
        let count = Self::ALL.len();
        let at = Self::ALL.iter().position(|s| *s == self).unwrap_or(0);
        let step = if forward { 1 } else { count - 1 };
        Self::ALL[(at + step) % count]
    }

    fn compare(self, a: &Connection, b: &Connection, now: Instant) -> Ordering {
        let rates = |c: &Connection| {
            let rate = |bytes: u64| bytes as f64 / c.moment.span.as_ns().max(1) as f64;
            match c.moment.lifetime {
                true => (0.0, 0.0),
                false => (rate(c.moment.acked_bytes), rate(c.moment.received_bytes)),
            }
        };
        let (x, y) = (rates(a), rates(b));
        let by_rate = || (y.0 + y.1).total_cmp(&(x.0 + x.1));
        let first = match self {
            Self::Rate => by_rate(),
            Self::Out => y.0.total_cmp(&x.0),
            Self::In => y.1.total_cmp(&x.1),
            Self::Limit => {
                let by_name = a.moment.limit.name().cmp(b.moment.limit.name());
                by_name.then(b.moment.share.total_cmp(&a.moment.share))
            }
            Self::Rtt => stretch(b).total_cmp(&stretch(a)),
            Self::Retransmitted => b
                .moment
                .retransmitted_share()
                .total_cmp(&a.moment.retransmitted_share()),
            Self::Age => b.age(now).cmp(&a.age(now)),
            Self::Process => process_name(a).cmp(process_name(b)),
            Self::Peer => a.remote.cmp(&b.remote),
        };
        first
            .then_with(by_rate)
            .then_with(|| b.since.acked_bytes.cmp(&a.since.acked_bytes))
            .then(a.id.cmp(&b.id))
    }
}

/// What of the table is shown.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Which.
    pub filter: Filter,
    /// In which order.
    pub sort: Sort,
    /// The other way round.
    pub reverse: bool,
    /// Sums instead of connections.
    pub by: Option<By>,
}

impl View {
    /// The connections that are shown, in order; `top` at most.
    pub fn select<'a>(&self, session: &'a Session, top: usize) -> Vec<&'a Connection> {
        let table = session.table();
        let mut found: Vec<&Connection> = table
            .connections()
            .filter(|c| self.filter.matches(c))
            .collect();
        let now = table.now();
        let order = |a: &&Connection, b: &&Connection| {
            let order = self.sort.compare(a, b, now);
            if self.reverse { order.reverse() } else { order }
        };
        // Of many only the first need an order.
        if top < found.len() / 2 {
            found.select_nth_unstable_by(top, order);
            found.truncate(top);
        }
        found.sort_unstable_by(order);
        found.truncate(top);
        found
    }

    /// The groups that are shown, those that carried most in the last interval first.
    pub fn groups(&self, session: &Session, by: By) -> Vec<(Key, Group)> {
        let groups = session.table().groups(by, |c| self.filter.matches(c));
        let mut groups: Vec<(Key, Group)> = groups.into_iter().collect();
        let recent = |g: &Group| g.recent.acked_bytes + g.recent.received_bytes;
        let whole = |g: &Group| {
            g.open.acked_bytes
                + g.open.received_bytes
                + g.closed.acked_bytes
                + g.closed.received_bytes
        };
        groups.sort_by(|(k, a), (l, b)| {
            let order = recent(b)
                .cmp(&recent(a))
                .then(whole(b).cmp(&whole(a)))
                .then(k.cmp(l));
            if self.reverse { order.reverse() } else { order }
        });
        groups
    }
}

/// Smoothed round trip over the smallest; 0 where neither is known.
pub(crate) fn stretch(known: &Connection) -> f64 {
    match min_rtt_us(known) {
        Some(least) if least > 0 => known.info.rtt_us as f64 / least as f64,
        _ => 0.0,
    }
}

/// The smallest round trip, once one was measured.
pub(crate) fn min_rtt_us(known: &Connection) -> Option<u64> {
    Some(known.info.min_rtt_us).filter(|&us| us > 0 && us < u64::from(u32::MAX))
}

fn process_name(known: &Connection) -> &str {
    known.process.as_ref().map_or("~", |p| p.name.as_str())
}

/// A connection in JSON; docs/run-folder.md says what the keys mean.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    event: &'static str,
    namespace: u16,
    cookie: u64,
    pid: Option<u32>,
    process: Option<String>,
    uid: u32,
    local: SocketAddr,
    remote: SocketAddr,
    state: &'static str,
    congestion_control: String,
    cgroup: Option<String>,
    container: Option<String>,
    goodput_out_bits_per_second: u64,
    goodput_in_bits_per_second: u64,
    limit: &'static str,
    limit_share: f64,
    lifetime: bool,
    shares: Option<RowShares>,
    rtt_us: u64,
    min_rtt_us: Option<u64>,
    retransmitted_share: f64,
    age_ns: u64,
    age_is_minimum: bool,
    acked_bytes: u64,
    received_bytes: u64,
    unread_bytes: u32,
    receive_buffer_bytes: Option<u32>,
    send_buffer_bytes: Option<u32>,
    /// The kernel's counters by their names.
    tcp_info: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct RowShares {
    application: f64,
    receive_window: f64,
    send_buffer: f64,
    network: f64,
}

impl Row {
    /// A connection as it is now.
    pub fn of(session: &Session, known: &Connection) -> Self {
        let moment = &known.moment;
        let cgroup = known.cgroup.and_then(|id| session.cgroup(id));
        Self {
            event: "connection",
            namespace: known.id.namespace,
            cookie: known.id.cookie,
            pid: known.process.as_ref().map(|p| p.pid),
            process: known.process.as_ref().map(|p| p.name.clone()),
            uid: known.uid,
            local: known.local,
            remote: known.remote,
            state: state::name(known.state),
            congestion_control: known.congestion.as_str().to_owned(),
            cgroup: cgroup.map(str::to_owned),
            container: known.cgroup.and_then(|id| session.container(id)),
            goodput_out_bits_per_second: moment.rate_out().as_bits_per_second(),
            goodput_in_bits_per_second: moment.rate_in().as_bits_per_second(),
            limit: moment.limit.name(),
            limit_share: moment.share,
            lifetime: moment.lifetime,
            shares: moment.shares.map(RowShares::of),
            rtt_us: known.info.rtt_us,
            min_rtt_us: min_rtt_us(known),
            retransmitted_share: moment.retransmitted_share(),
            age_ns: known.age(session.table().now()).as_ns(),
            age_is_minimum: known.was_there,
            acked_bytes: throughput::live::payload_acked(&known.info),
            received_bytes: known.info.bytes_received,
            unread_bytes: known.unread_bytes,
            receive_buffer_bytes: known.memory.map(|m| m.receive_buffer_bytes),
            send_buffer_bytes: known.memory.map(|m| m.send_buffer_bytes),
            tcp_info: known.info.fields().collect(),
        }
    }
}

impl RowShares {
    const fn of(shares: Shares) -> Self {
        Self {
            application: shares.application,
            receive_window: shares.receive_window,
            send_buffer: shares.send_buffer,
            network: shares.network,
        }
    }
}

/// A group in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct GroupRow {
    event: &'static str,
    by: &'static str,
    name: String,
    goodput_out_bits_per_second: u64,
    goodput_in_bits_per_second: u64,
    open: Sum,
    closed: Sum,
}

/// The whole of one interval in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    event: &'static str,
    time_ns: u64,
    interval_ns: u64,
    goodput_out_bits_per_second: u64,
    goodput_in_bits_per_second: u64,
    open: Sum,
    closed: Sum,
    counts: Counts,
    limits: BTreeMap<&'static str, u64>,
}

/// What `--json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// All together.
    #[serde(flatten)]
    pub summary: Summary,
    /// Those that were asked for.
    pub connections: Vec<Row>,
    /// With `--by`: the groups.
    pub groups: Vec<GroupRow>,
}

impl Document {
    /// What the session shows now.
    pub fn of(session: &Session, view: &View, names: &Names, top: usize) -> Self {
        let rows = match view.by {
            Some(_) => Vec::new(),
            None => view
                .select(session, top)
                .into_iter()
                .map(|c| Row::of(session, c))
                .collect(),
        };
        let groups = view.by.map_or_else(Vec::new, |by| {
            let groups = view.groups(session, by);
            groups
                .into_iter()
                .take(top)
                .map(|(key, group)| GroupRow::of(session, names, by, &key, &group))
                .collect()
        });
        Self {
            summary: Summary::of(session),
            connections: rows,
            groups,
        }
    }
}

impl GroupRow {
    fn of(session: &Session, names: &Names, by: By, key: &Key, group: &Group) -> Self {
        let (out, received) = rates(session, group);
        Self {
            event: "group",
            by: by.name(),
            name: key_name(session, names, key),
            goodput_out_bits_per_second: out,
            goodput_in_bits_per_second: received,
            open: group.open,
            closed: group.closed,
        }
    }
}

impl Summary {
    /// All connections of the session.
    pub fn of(session: &Session) -> Self {
        let table = session.table();
        let total = table.total();
        let mut limits = BTreeMap::new();
        for known in table.connections() {
            *limits.entry(known.moment.limit.name()).or_default() += 1;
        }
        let (out, received) = rates(session, &total);
        Self {
            event: "interval",
            time_ns: session.utc_ns(),
            interval_ns: table.interval().as_ns(),
            goodput_out_bits_per_second: out,
            goodput_in_bits_per_second: received,
            open: total.open,
            closed: total.closed,
            counts: *table.counts(),
            limits,
        }
    }
}

/// Bits a second of a group in the last interval: out, in.
pub(crate) fn rates(session: &Session, group: &Group) -> (u64, u64) {
    let interval = session.table().interval().as_ns();
    let rate = |bytes: u64| match interval {
        0 => 0,
        ns => u64::try_from(u128::from(bytes) * 8_000_000_000 / u128::from(ns)).unwrap_or(u64::MAX),
    };
    (
        rate(group.recent.acked_bytes),
        rate(group.recent.received_bytes),
    )
}

/// What a group is called.
pub(crate) fn key_name(session: &Session, names: &Names, key: &Key) -> String {
    match key {
        Key::Process(process) => format!("{} {}", process.name, process.pid),
        Key::Peer(address) => names.host(*address),
        Key::Port(port) => names.port(*port),
        Key::Cgroup(id) => match (session.container(*id), session.cgroup(*id)) {
            (Some(container), _) => format!("container {container}"),
            (None, Some(path)) => path.to_owned(),
            (None, None) => format!("cgroup {id}"),
        },
        Key::Unknown => "(not known)".to_owned(),
        Key::Others => "(others)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Options;
    use std::net::{TcpListener, TcpStream};

    /// Keys of a value that the page has to explain: of `tcp_info` and of sums only the name of the whole.
    fn keys(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => {
                for (key, value) in map {
                    found.push(key.clone());
                    if !["tcp_info", "limits"].contains(&key.as_str()) {
                        keys(value, found);
                    }
                }
            }
            serde_json::Value::Array(list) => list.iter().for_each(|v| keys(v, found)),
            _ => {}
        }
    }

    #[test]
    fn every_key_has_its_line_and_nothing_else_is_in_a_document() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let Ok(mut session) = Session::open(&Options::default()) else {
            testing::skipped("no socket diagnosis here");
            return;
        };
        session.tick().unwrap();
        let filter = format!("sport {}", near.local_addr().unwrap().port())
            .parse()
            .unwrap();
        let mut view = View {
            filter,
            ..View::default()
        };
        let mut found = Vec::new();
        for by in [None, Some(By::Port)] {
            view.by = by;
            let document = Document::of(&session, &view, &Names::default(), 10);
            assert!(document.connections.len() + document.groups.len() > 0);
            keys(&serde_json::to_value(document).unwrap(), &mut found);
        }
        let page = include_str!("../../../docs/run-folder.md");
        let (_, section) = page
            .split_once("## Live connections: `watch --json`")
            .unwrap();
        let section = section.split("\n## ").next().unwrap();
        for key in found {
            assert!(
                section.contains(&format!("`{key}`")),
                "docs/run-folder.md lacks {key}"
            );
        }
    }

    #[test]
    fn sorts_go_round_and_have_names_of_their_own() {
        let mut sort = Sort::Rate;
        for _ in Sort::ALL {
            assert_eq!(sort.step(true).step(false), sort);
            sort = sort.step(true);
        }
        assert_eq!(sort, Sort::Rate);
    }
}
