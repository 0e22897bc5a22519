//! How a copy goes: what had arrived when, and what kernels said of its connections, while it runs
//! and for the run folder.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use run::model::{self, CopyConnection, CopyQuic, SampleRecord};
use units::text::plain;
use wire::tcp_info::TcpInfo;

use crate::engine::{Connection, Note, Watch};
use crate::quic::Counts;

use super::caller::{Caller, NoteKind, Observer};
use super::limits::Limits;
use super::told::average;

/// How often how far it is is looked at.
const EVERY: Duration = Duration::from_millis(100);
/// Points that are kept of how it went.
const POINTS_MOST: usize = 2_000;
/// Readings of connections that are kept, all together.
const READINGS_MOST: usize = 20_000;
/// How often it is seen whether it is over.
const LOOK: Duration = Duration::from_millis(5);
/// Fields of `tcp_info` that the run folder and far sides have of each connection, in the order in which kernels learned them.
pub(super) const FIELDS: [&str; 12] = [
    "snd_mss_bytes",
    "unacked_segments",
    "rtt_us",
    "snd_cwnd_segments",
    "total_retrans_segments",
    "bytes_acked",
    "min_rtt_us",
    "delivery_rate_bytes_per_second",
    "busy_time_us",
    "rwnd_limited_us",
    "sndbuf_limited_us",
    "snd_wnd_bytes",
];

/// Has `observer` see how far it is until `is_over`, and stops it when the caller asks. Returns how
/// it went.
pub(super) fn follow(
    watch: &Watch,
    limits: &mut Limits,
    caller: &Caller,
    observer: &mut dyn Observer,
    is_over: &dyn Fn() -> bool,
) -> Progress {
    let mut progress = Progress::begin();
    observer.begin(progress.begun);
    let mut notes = 0;
    while !is_over() {
        let due = Instant::now() + EVERY;
        // Whoever copies one small file sees when it is done.
        while Instant::now() < due && !is_over() {
            thread::sleep(LOOK);
        }
        if caller.interrupted().is_some() {
            watch.stop();
        }
        if let Some(text) = limits.tick(watch) {
            observer.note(NoteKind::Limit, &text, progress.now_ns());
        }
        notes += tell_notes(watch, notes, &progress, observer);
        let confirmed = progress.take(watch);
        observer.look(watch, confirmed, &mut progress);
    }
    tell_notes(watch, notes, &progress, observer);
    let confirmed = progress.take(watch);
    observer.end(watch, confirmed, &mut progress);
    progress
}

/// Tells notes from the `from`th on; how many.
fn tell_notes(
    watch: &Watch,
    from: usize,
    progress: &Progress,
    observer: &mut dyn Observer,
) -> usize {
    let (notes, _) = watch.notes(from);
    for note in &notes {
        let (kind, text) = match note {
            Note::Chosen(text) => (NoteKind::Chosen, text),
            Note::Skipped(text) => (NoteKind::Skipped, text),
        };
        observer.note(kind, &plain(text), progress.now_ns());
    }
    notes.len()
}

/// Where most of a sender's time went, and how much of it.
pub fn largest(shares: &model::Shares) -> (&'static str, f64) {
    [
        ("network", shares.network),
        ("receive window", shares.receive_window),
        ("send buffer", shares.send_buffer),
        ("application", shares.application),
    ]
    .into_iter()
    .reduce(|most, other| if other.1 > most.1 { other } else { most })
    .unwrap_or_default()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What had arrived when, on the destination's word: a point every tenth of a second, and of a long copy so many
/// that a chart is as fine as it can be. Beside it what kernels said of the connections.
#[derive(Debug)]
pub struct Progress {
    begun: Instant,
    /// Nanoseconds and bytes.
    points: Vec<(u64, u64)>,
    /// One of so many looks is kept.
    each: u64,
    looks: u64,
    connections: Connections,
    quic: OverQuic,
    readings: Readings<TcpInfo>,
    over_quic: Readings<Counts>,
}

impl Progress {
    fn begin() -> Self {
        Self {
            begun: Instant::now(),
            points: vec![(0, 0)],
            each: 1,
            looks: 0,
            connections: Connections::default(),
            quic: OverQuic::default(),
            readings: Readings::default(),
            over_quic: Readings::default(),
        }
    }

    fn now_ns(&self) -> u64 {
        nanoseconds(self.begun.elapsed())
    }

    /// Takes what has arrived, and what is known of connections; how many bytes have arrived.
    fn take(&mut self, watch: &Watch) -> u64 {
        let confirmed = watch.confirmed_bytes.load(Ordering::Relaxed);
        self.push(confirmed);
        self.know(watch);
        confirmed
    }

    /// Connections since this was asked the last time, over TCP and over QUIC; none of those of
    /// which nothing was heard since.
    pub fn interval(&mut self) -> (Vec<CopyConnection>, Vec<CopyQuic>) {
        (self.connections.interval(), self.quic.interval())
    }

    fn push(&mut self, bytes: u64) {
        self.looks += 1;
        if !self.looks.is_multiple_of(self.each) {
            return;
        }
        self.points.push((self.now_ns(), bytes));
        if self.points.len() > POINTS_MOST {
            let mut number = 0;
            self.points.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.each *= 2;
        }
    }

    /// Takes what kernels say now.
    fn look(&mut self, all: &BTreeMap<u16, Connection>) {
        self.look_at(self.now_ns(), all);
    }

    /// Takes what QUIC counts now.
    fn look_over_quic(&mut self, all: &BTreeMap<u16, Counts>) {
        let now = self.now_ns();
        for (&stream, counts) in all {
            self.over_quic.take(stream, (now, counts.at_ns), *counts);
            self.quic.take(stream, counts);
        }
    }

    fn look_at(&mut self, now: u64, all: &BTreeMap<u16, Connection>) {
        for (&stream, connection) in all {
            if let Some(total) = self.connections.take(stream, connection) {
                self.readings.take(stream, (now, connection.at_ns), total);
            }
        }
    }

    /// Takes what is known of connections after the last look.
    pub(super) fn know(&mut self, watch: &Watch) {
        self.look(&watch.connections());
        self.look_over_quic(&watch.over_quic());
    }

    /// When the first connection that carries blocks was there, since the copy began; none of TCP, none.
    pub(super) fn first_made_ns(&self) -> Option<u64> {
        let made = self.connections.0.values().map(|seen| seen.first_ns);
        Some(self.readings.ours(made.min()?))
    }

    /// Each connection over all the time.
    pub(super) fn connections(&self) -> Vec<CopyConnection> {
        self.connections.whole()
    }

    /// As samples of the one who receives, and of each connection's sender.
    pub(super) fn samples(&self) -> impl Iterator<Item = SampleRecord> {
        let arrived = self.points.iter().map(|&(t_ns, app_bytes)| SampleRecord {
            phase: model::COPIED.to_owned(),
            end: "receiver".to_owned(),
            t_ns,
            app_bytes,
            ..SampleRecord::default()
        });
        // A connection was made with its counters at zero.
        let made = self.connections.0.iter().map(|(&stream, seen)| {
            let counters = seen.now.info.fields().filter(|(name, _)| is_counter(name));
            let counters = counters.map(|(name, _)| (name.to_owned(), 0)).collect();
            sender(stream, self.readings.ours(seen.first_ns), counters)
        });
        let told = self.readings.samples(|info| {
            let fields = info.fields().filter(|(name, _)| FIELDS.contains(name));
            fields.map(|(name, n)| (name.to_owned(), n)).collect()
        });
        let over_quic = self.over_quic.samples(quic_fields);
        let mut sent: Vec<_> = made.chain(told).chain(over_quic).collect();
        sent.sort_by_key(|sample| (sample.t_ns, sample.stream));
        arrived.chain(sent)
    }
}

/// A reading of a stream's sender.
fn sender(stream: u16, t_ns: u64, tcp_info: BTreeMap<String, u64>) -> SampleRecord {
    SampleRecord {
        phase: model::COPIED.to_owned(),
        end: "sender".to_owned(),
        stream: stream.into(),
        t_ns,
        tcp_info,
        ..SampleRecord::default()
    }
}

/// What a sample has of QUIC's counts, as `measure` names it.
fn quic_fields(counts: &Counts) -> BTreeMap<String, u64> {
    [
        ("quic_rtt_us", counts.rtt_us),
        ("quic_min_rtt_us", counts.min_rtt_us),
        (
            "quic_congestion_window_bytes",
            counts.congestion_window_bytes,
        ),
        ("quic_packet_bytes", counts.packet_bytes),
        ("quic_packets_sent", counts.packets_sent),
        ("quic_packets_lost", counts.packets_lost),
        ("quic_bytes_lost", counts.bytes_lost),
        ("quic_congestion_events", counts.congestion_events),
    ]
    .map(|(name, n)| (name.to_owned(), n))
    .into()
}

/// What was told of connections over time. Of many readings some are kept, of each stream by its own count: when
/// they are picked up says nothing of which are new.
#[derive(Debug, Default)]
struct Readings<T> {
    of: BTreeMap<u16, Told<T>>,
    /// Kept of all streams together.
    kept: usize,
    /// One of two to the power of this is kept.
    halvings: u32,
    /// How far the sending side's clock is ahead of ours, by the reading that took least to get here.
    ahead_ns: Option<i128>,
}

/// Readings of a stream.
#[derive(Debug)]
struct Told<T> {
    /// How many there were.
    count: u64,
    /// Numbers, times by the sending side's clock, and what was told.
    kept: Vec<(u64, u64, T)>,
    last: (u64, T),
}

impl<T: Copy> Readings<T> {
    /// Takes what is told of a stream, when it got here and when it was so; passed over if it is not new.
    fn take(&mut self, stream: u16, (now_ns, at_ns): (u64, u64), told: T) {
        let known = self.of.get(&stream);
        if known.is_some_and(|known| at_ns <= known.last.0) {
            return;
        }
        let ahead = i128::from(at_ns) - i128::from(now_ns);
        self.ahead_ns = Some(self.ahead_ns.map_or(ahead, |known| known.max(ahead)));
        let all = self.of.entry(stream).or_insert_with(|| Told {
            count: 0,
            kept: Vec::new(),
            last: (at_ns, told),
        });
        let number = all.count;
        all.count += 1;
        all.last = (at_ns, told);
        if number.trailing_zeros() < self.halvings {
            return;
        }
        all.kept.push((number, at_ns, told));
        self.kept += 1;
        if self.kept > READINGS_MOST {
            self.halvings += 1;
            let halvings = self.halvings;
            self.kept = 0;
            for all in self.of.values_mut() {
                all.kept
                    .retain(|(number, ..)| number.trailing_zeros() >= halvings);
                self.kept += all.kept.len();
            }
        }
    }

    /// Those kept, and the last of each stream.
    fn samples(
        &self,
        fields: impl Fn(&T) -> BTreeMap<String, u64>,
    ) -> impl Iterator<Item = SampleRecord> {
        self.of.iter().flat_map(move |(&stream, all)| {
            let is_kept = all.kept.last().is_some_and(|kept| kept.1 == all.last.0);
            let kept = all.kept.iter().map(|(_, at_ns, told)| (*at_ns, *told));
            let readings = kept.chain((!is_kept).then_some(all.last));
            let readings =
                readings.map(|(at_ns, told)| sender(stream, self.ours(at_ns), fields(&told)));
            readings.collect::<Vec<_>>()
        })
    }

    /// A time of the sending side's clock by ours.
    fn ours(&self, at_ns: u64) -> u64 {
        let since = i128::from(at_ns) - self.ahead_ns.unwrap_or(0);
        u64::try_from(since.max(0)).unwrap_or(u64::MAX)
    }
}

fn is_counter(name: &str) -> bool {
    COUNTERS.contains(&name)
}

/// Connections, each as if it had never been made again.
#[derive(Debug, Default)]
struct Connections(BTreeMap<u16, Seen>);

/// What was seen of one: counters grow over all connections that a stream has had.
#[derive(Debug, Default)]
struct Seen {
    first_ns: u64,
    /// At the end of the last interval.
    said: Connection,
    now: Connection,
    /// What connections before this one had counted.
    before: TcpInfo,
    /// What this connection's kernel said last.
    raw: TcpInfo,
}

/// The counters that are added up.
const COUNTERS: [&str; 5] = [
    "bytes_acked",
    "total_retrans_segments",
    "busy_time_us",
    "rwnd_limited_us",
    "sndbuf_limited_us",
];

/// `one`, with the other's counters added.
fn plus(one: &TcpInfo, other: &TcpInfo) -> TcpInfo {
    let mut sum = *one;
    for (name, value) in one.fields().filter(|(name, _)| is_counter(name)) {
        let added = other.fields().find(|(found, _)| *found == name);
        sum.set(name, value.saturating_add(added.map_or(0, |(_, n)| n)));
    }
    sum
}

impl Connections {
    /// Takes what a kernel says of a connection; the stream's sum, if it is new.
    fn take(&mut self, stream: u16, connection: &Connection) -> Option<TcpInfo> {
        let seen = self.0.entry(stream).or_insert_with(|| Seen {
            first_ns: connection.since_ns,
            said: Connection {
                at_ns: connection.since_ns,
                ..Connection::default()
            },
            ..Seen::default()
        });
        // A far side's words may be in any order.
        if connection.at_ns <= seen.now.at_ns {
            return None;
        }
        if connection.info.bytes_acked < seen.raw.bytes_acked {
            seen.before = plus(&seen.raw, &seen.before);
        }
        seen.raw = connection.info;
        seen.now = Connection {
            info: plus(&connection.info, &seen.before),
            ..*connection
        };
        Some(seen.now.info)
    }

    /// Each since the last interval; none of those of which nothing was heard since.
    fn interval(&mut self) -> Vec<CopyConnection> {
        let mut all = Vec::with_capacity(self.0.len());
        for (&stream, seen) in &mut self.0 {
            if seen.now.at_ns > seen.said.at_ns {
                all.push(between(stream, &seen.said, &seen.now));
                seen.said = seen.now;
            }
        }
        all
    }

    /// Each from its first look to its last.
    fn whole(&self) -> Vec<CopyConnection> {
        let all = self.0.iter();
        all.map(|(&stream, seen)| {
            let first = Connection {
                at_ns: seen.first_ns,
                ..Connection::default()
            };
            between(stream, &first, &seen.now)
        })
        .collect()
    }
}

/// Connections over QUIC: what was counted at the end of the last interval, and now.
#[derive(Debug, Default)]
struct OverQuic(BTreeMap<u16, [Counts; 2]>);

impl OverQuic {
    /// Takes what is counted of a stream.
    fn take(&mut self, stream: u16, counts: &Counts) {
        let [_, now] = self.0.entry(stream).or_insert_with(|| {
            let made = Counts {
                made_ns: counts.made_ns,
                at_ns: counts.made_ns,
                ..Counts::default()
            };
            [made; 2]
        });
        // A far side's words may be in any order.
        if counts.at_ns > now.at_ns {
            *now = *counts;
        }
    }

    /// Each since the last interval; none of those of which nothing was heard since.
    fn interval(&mut self) -> Vec<CopyQuic> {
        let news = self
            .0
            .iter_mut()
            .filter(|(_, [said, now])| said.at_ns < now.at_ns);
        let told = news.map(|(stream, [said, now])| {
            let told = since(*stream, said, now);
            *said = *now;
            told
        });
        told.collect()
    }
}

/// What a connection over QUIC counted between two readings; its sum of bytes is since it was made.
pub(super) fn since(stream: u16, from: &Counts, to: &Counts) -> CopyQuic {
    let took = Duration::from_nanos(to.at_ns.saturating_sub(from.at_ns));
    CopyQuic {
        stream: stream.into(),
        sent_bytes: to.bytes_sent,
        sent_bits_per_second: match took.is_zero() {
            true => 0,
            false => {
                let sent = to.bytes_sent.saturating_sub(from.bytes_sent);
                average(sent, took).as_bits_per_second()
            }
        },
        packets_sent: to.packets_sent.saturating_sub(from.packets_sent),
        packets_lost: to.packets_lost.saturating_sub(from.packets_lost),
        lost_bytes: to.bytes_lost.saturating_sub(from.bytes_lost),
        congestion_events: to.congestion_events.saturating_sub(from.congestion_events),
        rtt_ns: to.rtt_us.saturating_mul(1_000),
        rtt_min_ns: to.min_rtt_us.saturating_mul(1_000),
        congestion_window_bytes: to.congestion_window_bytes,
        packet_bytes: to.packet_bytes,
    }
}

/// What happened between two readings.
fn between(stream: u16, from: &Connection, to: &Connection) -> CopyConnection {
    let took = Duration::from_nanos(to.at_ns.saturating_sub(from.at_ns));
    let (before, info) = (&from.info, &to.info);
    let acked = info.bytes_acked.saturating_sub(before.bytes_acked);
    let sample = |connection: &Connection| throughput::Sample {
        t: units::Duration::from_ns(connection.at_ns),
        info: connection.info,
        ..throughput::Sample::default()
    };
    let shares = throughput::shares(&[sample(from), sample(to)]).map(|found| model::Shares {
        application: found.application,
        receive_window: found.receive_window,
        send_buffer: found.send_buffer,
        network: found.network,
    });
    // All ones: none was measured yet.
    let shortest = Some(info.min_rtt_us).filter(|us| *us < u64::from(u32::MAX));
    CopyConnection {
        stream: stream.into(),
        acked_bytes: info.bytes_acked,
        acked_bits_per_second: match took.is_zero() {
            true => 0,
            false => average(acked, took).as_bits_per_second(),
        },
        retransmitted_segments: info
            .total_retrans_segments
            .saturating_sub(before.total_retrans_segments),
        rtt_ns: info.rtt_us.saturating_mul(1_000),
        rtt_min_ns: shortest.unwrap_or(0) * 1_000,
        congestion_window_bytes: info.snd_cwnd_segments.saturating_mul(info.snd_mss_bytes),
        peer_window_bytes: info.snd_wnd_bytes,
        held_by: shares.map_or_else(String::new, |shares| largest(&shares).0.to_owned()),
        shares,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_copy_keeps_as_many_points_as_a_short_one_and_both_ends() {
        let mut progress = Progress::begin();
        for n in 1..=100_000 {
            progress.push(n);
        }
        let kept: Vec<u64> = progress.samples().map(|sample| sample.app_bytes).collect();
        assert!(kept.len() > POINTS_MOST / 3 && kept.len() <= POINTS_MOST);
        assert_eq!(kept[0], 0);
        assert!(kept.last().is_some_and(|last| *last > 99_000));
        let steps: Vec<u64> = kept.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(steps.iter().all(|step| step.is_power_of_two()), "{steps:?}");
    }

    /// A reading after so many milliseconds, of a kernel that keeps clocks.
    fn reading(ms: u64, acked: u64, busy_ms: u64, rwnd_ms: u64) -> Connection {
        Connection {
            since_ns: 1_000_000_000,
            at_ns: ms * 1_000_000,
            info: TcpInfo {
                len_bytes: 232,
                bytes_acked: acked,
                busy_time_us: busy_ms * 1_000,
                rwnd_limited_us: rwnd_ms * 1_000,
                total_retrans_segments: acked / 1_000,
                rtt_us: 100_000,
                ..TcpInfo::default()
            },
        }
    }

    #[test]
    fn a_connection_made_again_goes_on_counting() {
        let mut all = Connections::default();
        all.take(7, &reading(1_000, 0, 0, 0));
        all.take(7, &reading(2_000, 10_000, 1_000, 600));
        let [first] = &all.interval()[..] else {
            panic!("one connection");
        };
        assert_eq!((first.stream, first.acked_bits_per_second), (7, 80_000));
        assert_eq!(first.held_by, "receive window");
        assert_eq!(all.interval(), []);
        // Cut and made again; what comes late is passed over.
        all.take(7, &reading(3_000, 2_000, 100, 0));
        assert_eq!(all.take(7, &reading(2_500, 9, 0, 0)), None);
        all.take(7, &reading(4_000, 5_000, 1_000, 0));
        let [second] = &all.interval()[..] else {
            panic!("one connection");
        };
        assert_eq!(second.acked_bytes, 15_000);
        assert_eq!(second.acked_bits_per_second, 20_000);
        assert_eq!(
            (second.retransmitted_segments, first.retransmitted_segments),
            (5, 10)
        );
        let [whole] = &all.whole()[..] else {
            panic!("one connection");
        };
        assert_eq!(whole.acked_bits_per_second, 40_000);
        assert_eq!(whole.rtt_ns, 100_000_000);
    }

    #[test]
    fn readings_of_many_connections_are_thinned_together() {
        let mut progress = Progress::begin();
        for n in 1..=2_000 {
            progress.push(n);
            let all = (0..64).map(|stream| (stream, reading(n, n, n, 0)));
            progress.look(&all.collect());
        }
        assert!(progress.readings.kept <= READINGS_MOST);
        let of = |stream| progress.readings.of[&stream].kept.len();
        assert!(of(0) > 100 && of(0) == of(63), "{} {}", of(0), of(63));
        let last: Vec<_> = progress
            .samples()
            .filter(|sample| sample.end == "sender")
            .filter(|sample| sample.tcp_info["bytes_acked"] == 2_000)
            .collect();
        assert_eq!(last.len(), 64);
    }

    /// Samples of a sender's connections.
    fn sent(progress: &Progress, stream: u32) -> Vec<SampleRecord> {
        let all = progress.samples();
        let of = |sample: &SampleRecord| sample.end == "sender" && sample.stream == stream;
        all.filter(of).collect()
    }

    #[test]
    fn no_reading_is_missed_however_it_falls_between_looks() {
        // The sender looks each 205 ms, and we each 101.
        let mut progress = Progress::begin();
        for tick in 12..400 {
            let ms = tick * 101 / 205 * 205;
            let all = [(0, reading(ms, ms, ms, 0))].into();
            progress.look_at(tick * 101_000_000, &all);
        }
        let samples = sent(&progress, 0);
        let apart: Vec<u64> = samples[1..]
            .windows(2)
            .map(|two| two[1].t_ns - two[0].t_ns)
            .collect();
        assert_eq!(apart.len() as u64, 399 * 101 / 205 - 12 * 101 / 205);
        assert!(apart.iter().all(|ns| *ns == 205_000_000), "{apart:?}");
    }

    #[test]
    fn samples_come_to_what_the_table_says() {
        let mut progress = Progress::begin();
        // Made again at 4 s.
        for (ms, busy, rwnd) in [
            (1_200, 150, 0),
            (2_000, 900, 300),
            (3_000, 1_700, 300),
            (4_000, 0, 0),
            (5_000, 800, 500),
            (6_000, 1_500, 700),
        ] {
            let all = [(9, reading(ms, busy, busy, rwnd))].into();
            progress.look_at(ms * 1_000_000, &all);
        }
        let samples = sent(&progress, 9);
        let ends = [&samples[0], &samples[samples.len() - 1]].map(|sample| {
            let mut info = TcpInfo::default();
            for (name, value) in &sample.tcp_info {
                info.set(name, *value);
            }
            throughput::Sample {
                t: units::Duration::from_ns(sample.t_ns),
                info,
                ..throughput::Sample::default()
            }
        });
        let told = throughput::shares(&ends).unwrap();
        let [whole] = &progress.connections()[..] else {
            panic!("one connection");
        };
        let shares = whole.shares.unwrap();
        // Five seconds; 1,700 and 1,500 ms busy.
        assert_eq!(shares.receive_window, 1.0 / 5.0);
        assert_eq!(told.receive_window, shares.receive_window);
        assert_eq!((told.network, shares.network), (0.44, 0.44));
        assert_eq!(told.application, shares.application);
        assert_eq!(ends[1].info.bytes_acked, whole.acked_bytes);
        // What is not known of a connection when it is made is not said.
        assert!(!samples[0].tcp_info.contains_key("rtt_us"));
    }

    #[test]
    fn what_quic_counts_is_in_the_samples() {
        let mut progress = Progress::begin();
        for at_ns in [5_000, 5_000, 6_000] {
            let words = [
                4_000, at_ns, 101_000, 100_000, 64_000, 1_400, at_ns, 3, 9, 8, 2,
            ];
            let all = [(1, Counts::of_words(&words))].into();
            progress.look_over_quic(&all);
        }
        let samples = sent(&progress, 1);
        assert_eq!(samples.len(), 2);
        let last = &samples[1].tcp_info;
        assert!(
            last.keys()
                .all(|name| model::QUIC_FIELDS.contains(&name.as_str()))
        );
        assert_eq!(
            (last["quic_packets_sent"], last["quic_rtt_us"]),
            (6_000, 101_000)
        );
    }

    #[test]
    fn an_interval_has_what_quic_counted_in_it() {
        let mut all = OverQuic::default();
        let counted = |at_ms: u64, sent: u64| {
            let words = [
                1_000_000_000,
                at_ms * 1_000_000,
                101_000,
                100_000,
                64_000,
                1_400,
                sent,
                sent / 10,
                sent * 1_250,
                sent * 125,
                2,
            ];
            Counts::of_words(&words)
        };
        all.take(3, &counted(2_000, 100));
        let [first] = &all.interval()[..] else {
            panic!("one connection");
        };
        assert_eq!((first.stream, first.sent_bits_per_second), (3, 1_000_000));
        assert_eq!((first.packets_sent, first.packets_lost), (100, 10));
        assert_eq!((first.rtt_ns, first.congestion_events), (101_000_000, 2));
        assert_eq!(all.interval(), []);
        all.take(3, &counted(2_500, 400));
        // What comes late is passed over.
        all.take(3, &counted(2_100, 120));
        let [second] = &all.interval()[..] else {
            panic!("one connection");
        };
        assert_eq!((second.sent_bytes, second.packets_sent), (500_000, 300));
        assert_eq!(second.sent_bits_per_second, 6_000_000);
        assert_eq!((second.lost_bytes, second.congestion_events), (37_500, 0));
    }

    #[test]
    fn a_far_clock_is_told_by_what_came_soonest() {
        let mut readings = Readings::<()>::default();
        // 100 s ahead; on the way for 40, 3 and 25 ms.
        for (now_ms, at_ms) in [(1_000, 100_960), (2_003, 102_000), (3_025, 103_000)] {
            let times = (now_ms * 1_000_000, at_ms * 1_000_000);
            readings.take(0, times, ());
        }
        // By the second.
        assert_eq!(readings.ours(103_000_000_000), 3_003_000_000);
        assert_eq!((readings.ours(0), readings.ours(99_000_000_000)), (0, 0));
        let mut wild = Readings::<()>::default();
        wild.take(0, (5, u64::MAX), ());
        wild.take(0, (6, 0), ());
        assert_eq!((wild.ours(u64::MAX), wild.ours(7)), (5, 0));
    }
}
