//! What a session knows, for collectors of OpenMetrics: histograms by limit, port and prefix. No connection has a label of its own:
//! labels would grow without end. Ports and prefixes are those that carry most, 16 of each; the rest is `other`.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use throughput::live::Limit;
use units::openmetrics::{Kind, Text};

use crate::session::Session;
use crate::sums::{By, Key};
use crate::table::Connection;

/// Counts by upper bound, and the sum of what was counted.
#[derive(Clone, Debug, Default)]
struct Buckets {
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Buckets {
    fn add(&mut self, value: f64, bounds: &[f64]) {
        self.counts.resize(bounds.len(), 0);
        if let Some(at) = bounds.iter().position(|bound| value <= *bound) {
            self.counts[at] += 1;
        }
        self.sum += value;
        self.count += 1;
    }
}

/// Replaces a file by the text, as collectors of text files want it: whole at all times.
///
/// # Errors
/// As open(2), write(2) and rename(2).
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    fs::write(&beside, text)?;
    fs::rename(&beside, path)
}

/// The whole text.
pub fn text(session: &Session) -> String {
    let table = session.table();
    let mut text = Text::default();
    let mut limits = BTreeMap::from(Limit::ALL.map(|l| (l.name(), 0_u64)));
    for known in table.connections() {
        *limits.entry(known.moment.limit.name()).or_default() += 1;
    }
    let mut rows = text.family(
        "goodput_watch_connections",
        Kind::Gauge,
        "",
        "Open TCP connections by what limits them.",
    );
    for (limit, count) in &limits {
        rows.row(&[("limit", limit)], count);
    }
    totals(session, &mut text);
    histograms(session, &mut text);
    text.end()
}

fn totals(session: &Session, text: &mut Text) {
    let (total, counts) = (session.table().total(), session.table().counts());
    let both = |open: u64, closed: u64| open.saturating_add(closed);
    let mut rows = text.family(
        "goodput_watch_payload_bytes",
        Kind::Counter,
        "bytes",
        "Payload since the start of watching, connections that closed included.",
    );
    rows.row(
        &[("direction", "out")],
        both(total.open.acked_bytes, total.closed.acked_bytes),
    );
    rows.row(
        &[("direction", "in")],
        both(total.open.received_bytes, total.closed.received_bytes),
    );
    let mut rows = text.family(
        "goodput_watch_segments_retransmitted",
        Kind::Counter,
        "",
        "Segments retransmitted since the start of watching.",
    );
    let retransmitted = both(
        total.open.segments_retransmitted,
        total.closed.segments_retransmitted,
    );
    rows.row(&[], retransmitted);
    let mut rows = text.family(
        "goodput_watch_closed_connections",
        Kind::Counter,
        "",
        "Connections that closed since the start of watching.",
    );
    rows.row(&[], total.closed.connections);
    let mut rows = text.family(
        "goodput_watch_gaps",
        Kind::Counter,
        "",
        "Times that the kernel's queue of close events was full, so that some were lost.",
    );
    rows.row(&[], counts.gaps);
}

fn histograms(session: &Session, text: &mut Text) {
    let table = session.table();
    let ports = largest_ports(session);
    let prefixes = largest_prefixes(session);
    let rtt = |c: &Connection| c.info.rtt_us as f64 / 1e6;
    let rate = |c: &Connection| {
        let moment = &c.moment;
        (moment.rate_out().as_bits_per_second() + moment.rate_in().as_bits_per_second()) as f64
    };
    let by_limit = |c: &Connection| c.moment.limit.name().to_owned();
    let by_port = |c: &Connection| match table.key(c, By::Port) {
        Key::Port(port) if ports.contains(&Key::Port(port)) => port.to_string(),
        _ => OTHER.to_owned(),
    };
    let by_prefix = |c: &Connection| {
        let found = prefix(c.remote.ip());
        let known = prefixes.contains(&found);
        if known { found } else { OTHER.to_owned() }
    };
    let (seconds, bits) = (("seconds", &RTT_BOUNDS[..]), ("", &RATE_BOUNDS[..]));
    histogram(
        session,
        text,
        ("goodput_watch_limit_rtt_seconds", "limit"),
        seconds,
        by_limit,
        rtt,
    );
    histogram(
        session,
        text,
        ("goodput_watch_limit_rate", "limit"),
        bits,
        by_limit,
        rate,
    );
    histogram(
        session,
        text,
        ("goodput_watch_port_rate", "port"),
        bits,
        by_port,
        rate,
    );
    histogram(
        session,
        text,
        ("goodput_watch_prefix_rtt_seconds", "prefix"),
        seconds,
        by_prefix,
        rtt,
    );
    histogram(
        session,
        text,
        ("goodput_watch_prefix_rate", "prefix"),
        bits,
        by_prefix,
        rate,
    );
}

/// The ports of most open connections.
fn largest_ports(session: &Session) -> Vec<Key> {
    let groups = session.table().groups(By::Port, |_| true).into_iter();
    let mut groups: Vec<_> = groups.map(|(k, g)| (g.open.connections, k)).collect();
    groups.sort_by(|a, b| b.cmp(a));
    groups
        .into_iter()
        .map(|(_, key)| key)
        .take(LABELS_MAX)
        .collect()
}

/// The prefixes that most open connections lead to.
fn largest_prefixes(session: &Session) -> Vec<String> {
    let mut prefixes: HashMap<String, u64> = HashMap::new();
    for known in session.table().connections() {
        let prefix = prefix(known.remote.ip());
        if prefixes.len() < PREFIXES_MAX || prefixes.contains_key(&prefix) {
            *prefixes.entry(prefix).or_default() += 1;
        }
    }
    let mut prefixes: Vec<_> = prefixes.into_iter().map(|(p, n)| (n, p)).collect();
    prefixes.sort_by(|a, b| b.cmp(a));
    prefixes
        .into_iter()
        .map(|(_, prefix)| prefix)
        .take(LABELS_MAX)
        .collect()
}

/// One histogram for each value of a label, of the connections that are open now.
fn histogram(
    session: &Session,
    text: &mut Text,
    (name, label): (&str, &str),
    (unit, bounds): (&str, &[f64]),
    group: impl Fn(&Connection) -> String,
    value: impl Fn(&Connection) -> f64,
) {
    let mut each: BTreeMap<String, Buckets> = BTreeMap::new();
    for known in session.table().connections() {
        each.entry(group(known))
            .or_default()
            .add(value(known), bounds);
    }
    let what = if unit.is_empty() {
        "Payload of both directions in bits per second"
    } else {
        "Smoothed round trip"
    };
    let help = format!("{what} of open connections by {label}.");
    let mut rows = text.family(name, Kind::Histogram, unit, &help);
    for (value, buckets) in &each {
        let mut below = 0;
        for (bound, count) in bounds.iter().zip(&buckets.counts) {
            below += count;
            rows.row_of(
                "_bucket",
                &[(label, value), ("le", &bound.to_string())],
                below,
            );
        }
        rows.row_of("_bucket", &[(label, value), ("le", "+Inf")], buckets.count);
        rows.row_of("_sum", &[(label, value)], buckets.sum);
        rows.row_of("_count", &[(label, value)], buckets.count);
    }
}

/// The peer's /24 or, of IPv6, /48.
fn prefix(address: IpAddr) -> String {
    match address {
        IpAddr::V4(a) => format!("{}/24", Ipv4Addr::from_bits(a.to_bits() & !0xff)),
        IpAddr::V6(a) => format!(
            "{}/48",
            Ipv6Addr::from_bits(a.to_bits() & !(u128::MAX >> 48))
        ),
    }
}

const OTHER: &str = "other";
const LABELS_MAX: usize = 16;
const PREFIXES_MAX: usize = 10_000;
/// 100 us to 10 s.
const RTT_BOUNDS: [f64; 11] = [
    0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0,
];
/// 1 kb/s to 100 Gb/s.
const RATE_BOUNDS: [f64; 9] = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_networks_of_24_and_48_bits() {
        assert_eq!(prefix("10.1.2.3".parse().unwrap()), "10.1.2.0/24");
        assert_eq!(
            prefix("2001:db8:1:2::3".parse().unwrap()),
            "2001:db8:1::/48"
        );
    }

    #[test]
    fn a_value_on_a_bound_is_within_it_and_one_above_all_counts_too() {
        let mut buckets = Buckets::default();
        for value in [1.0, 1.1, 9.0] {
            buckets.add(value, &[1.0, 2.0]);
        }
        assert_eq!((buckets.counts, buckets.count), (vec![1, 1], 3));
    }
}
