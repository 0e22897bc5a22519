//! Parallel streams at a queue: how much of it each got, in which order they came to it in a round
//! trip, and in which order they lost.
//!
//! What counts is what the queue served, bytes on the wire, retransmissions included. The streams are
//! the flows at the link and queue that served most; flows with less than a hundredth of the largest
//! one's bytes are requests and control connections, not streams.
//!
//! A round trip's bursts are taken to begin with the first packet after a silence of [`PAUSE`]. Where
//! packets come without a pause there is no order to tell.

use std::collections::{BTreeMap, HashMap};

use link::record::{Code, Reader, Row};
use units::{Duration, Instant};

use super::contents::Contents;

/// The streams of a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Streams {
    /// The link's name.
    pub link: String,
    /// From the first to the last packet served.
    pub time: Duration,
    /// In the order of their first packets.
    pub streams: Vec<Stream>,
    /// Their numbers in [`Self::streams`] in the order of their bursts, in the round trip in which the
    /// first was lost; empty where there was no loss or no pause before it.
    pub burst_order: Vec<usize>,
    /// In the order in which each first lost.
    pub loss_order: Vec<usize>,
    /// The least stream's bytes over the mean.
    pub min_to_mean: f64,
    /// Jain's index of fairness of the bytes: 1 where all are alike, 1/n where one has all.
    pub jain: f64,
    /// The same in sections of time: their length, and the medians over those in which the streams sent.
    pub sections: Vec<Sections>,
    /// From the host's hand to the queue, mean and longest: what a harmonizer and lines before it add.
    pub to_queue: (Duration, Duration),
}

/// One stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Its hash in the log.
    pub flow: u32,
    /// Served, on the wire.
    pub wire_bytes: u64,
    /// Segments lost at the queue.
    pub lost: u64,
    /// When the first was lost, after the first packet of all.
    pub first_lost: Option<Duration>,
    /// When it had moved its part of a file that is striped over all streams alike.
    pub striped: Option<Duration>,
}

/// Streams over sections of one length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sections {
    /// Of each.
    pub length: Duration,
    /// Median of the least stream over the mean.
    pub min_to_mean: f64,
    /// Median of Jain's index.
    pub jain: f64,
}

impl Streams {
    /// Reads a log; `striped` bytes on the wire are a file that all streams share alike. `None` where no
    /// queue served anything.
    pub fn read(reader: Reader<'_>, sections: &[Duration], striped: Option<u64>) -> Option<Self> {
        let contents = Contents::read(reader);
        let (link, stage, flows) = busiest(&contents)?;
        let mut of_flow: HashMap<u32, usize> = HashMap::new();
        let mut builder = Builder::new(flows.len(), sections, striped);
        for row in contents
            .rows()
            .filter(|r| r.link == link && r.stage == stage)
        {
            if !flows.contains(&row.flow) {
                continue;
            }
            let next = of_flow.len();
            let number = *of_flow.entry(row.flow).or_insert(next);
            builder.streams[number].flow = row.flow;
            let came = contents.frame(row.frame).map(|frame| frame.time);
            builder.take(&row, number, came);
        }
        let name = contents.legend.links.get(usize::from(link));
        Some(builder.finish(name.map_or("", |l| &l.name).to_owned()))
    }
}

/// The link and stage that served most, and the flows that count there.
fn busiest(contents: &Contents<'_>) -> Option<(u16, u8, Vec<u32>)> {
    let mut places: BTreeMap<(u16, u8), HashMap<u32, u64>> = BTreeMap::new();
    for row in contents.rows().filter(|row| row.decision == Code::SERVED) {
        let bytes = u64::from(row.count) * u64::from(row.wire_bytes);
        let flows = places.entry((row.link, row.stage)).or_default();
        // A log that names flows without end is told by its first ones.
        if flows.len() < FLOWS_MAX || flows.contains_key(&row.flow) {
            *flows.entry(row.flow).or_default() += bytes;
        }
    }
    let most = |flows: &HashMap<u32, u64>| flows.values().sum::<u64>();
    let (&(link, stage), flows) = places.iter().max_by_key(|(_, flows)| most(flows))?;
    let largest = flows.values().max().copied()?;
    let counts = flows
        .iter()
        .filter(|&(_, &bytes)| bytes * STREAM_OF >= largest);
    Some((link, stage, counts.map(|(&flow, _)| flow).collect()))
}

struct Builder {
    streams: Vec<Stream>,
    begins: Option<Instant>,
    ends: Instant,
    striped: Option<u64>,
    sections: Vec<Counts>,
    loss_order: Vec<usize>,
    burst_order: Vec<usize>,
    round: Round,
    to_queue: (u128, u64, Duration),
}

/// The round trip that is under way: of each stream, packets and the sum of their times since it
/// began.
struct Round {
    begins: Option<Instant>,
    last: Instant,
    packets: Vec<(u64, u128)>,
}

/// Bytes of the section under way, and what the earlier ones came to.
struct Counts {
    length: Duration,
    number: u64,
    bytes: Vec<u64>,
    each: Vec<(f64, f64)>,
}

impl Builder {
    fn new(streams: usize, sections: &[Duration], striped: Option<u64>) -> Self {
        let counts = |&length: &Duration| Counts {
            length: length.max(Duration::from_us(1)),
            number: 0,
            bytes: vec![0; streams],
            each: Vec::new(),
        };
        Self {
            streams: vec![Stream::default(); streams],
            begins: None,
            ends: Instant::ZERO,
            striped: striped.map(|bytes| bytes / (streams as u64).max(1)),
            sections: sections.iter().map(counts).collect(),
            loss_order: Vec::new(),
            burst_order: Vec::new(),
            round: Round {
                begins: None,
                last: Instant::ZERO,
                packets: vec![(0, 0); streams],
            },
            to_queue: (0, 0, Duration::ZERO),
        }
    }

    fn take(&mut self, row: &Row, number: usize, came: Option<Instant>) {
        let begins = *self.begins.get_or_insert(row.time);
        if row.decision == Code::SERVED {
            self.serve(row, number, begins);
            return;
        }
        let is_drop = row.decision.0 >= Code::LOST_RANDOM.0;
        if !is_drop && row.decision != Code::QUEUED {
            return;
        }
        self.arrive(row, number);
        if let Some(came) = came {
            let late = row.time.saturating_since(came);
            self.to_queue.0 += u128::from(late.as_ns()) * u128::from(row.count);
            self.to_queue.1 += u64::from(row.count);
            self.to_queue.2 = self.to_queue.2.max(late);
        }
        if is_drop {
            let stream = &mut self.streams[number];
            stream.lost += u64::from(row.count);
            if stream.first_lost.is_none() {
                stream.first_lost = Some(row.time.saturating_since(begins));
                self.loss_order.push(number);
            }
        }
    }

    fn arrive(&mut self, row: &Row, number: usize) {
        if row.time.saturating_since(self.round.last) >= PAUSE {
            self.end_round();
            self.round.begins = Some(row.time);
            self.round.packets.fill((0, 0));
        }
        self.round.last = self.round.last.max(row.time);
        if let Some(begins) = self.round.begins {
            let (packets, times) = &mut self.round.packets[number];
            *packets += u64::from(row.count);
            let since = row.time.saturating_since(begins).as_ns();
            *times += u128::from(since) * u128::from(row.count);
        }
    }

    /// Keeps the order of the round trip in which the first was lost.
    fn end_round(&mut self) {
        if self.loss_order.is_empty() || !self.burst_order.is_empty() {
            return;
        }
        let mean = |&(packets, times): &(u64, u128)| times / u128::from(packets.max(1));
        let packets = &self.round.packets;
        let there = (0..packets.len()).filter(|&n| packets[n].0 > 0);
        self.burst_order = there.collect();
        self.burst_order.sort_by_key(|&n| mean(&packets[n]));
    }

    fn serve(&mut self, row: &Row, number: usize, begins: Instant) {
        for k in 0..row.count {
            let at = row.segment(k).departs.unwrap_or(row.time);
            self.ends = self.ends.max(at);
            let since = at.saturating_since(begins);
            let bytes = u64::from(row.wire_bytes);
            let stream = &mut self.streams[number];
            stream.wire_bytes += bytes;
            if stream.striped.is_none() && self.striped.is_some_and(|s| stream.wire_bytes >= s) {
                stream.striped = Some(since);
            }
            for counts in &mut self.sections {
                counts.add(since, number, bytes);
            }
        }
    }

    fn finish(mut self, link: String) -> Streams {
        self.end_round();
        let bytes: Vec<u64> = self.streams.iter().map(|s| s.wire_bytes).collect();
        let (min_to_mean, jain) = balance(&bytes);
        let mean = self.to_queue.0 / u128::from(self.to_queue.1.max(1));
        let mean = Duration::from_ns(u64::try_from(mean).unwrap_or(u64::MAX));
        Streams {
            link,
            time: self
                .begins
                .map_or(Duration::ZERO, |b| self.ends.saturating_since(b)),
            streams: self.streams,
            burst_order: self.burst_order,
            loss_order: self.loss_order,
            min_to_mean,
            jain,
            sections: self.sections.into_iter().map(Counts::finish).collect(),
            to_queue: (mean, self.to_queue.2),
        }
    }
}

impl Counts {
    fn add(&mut self, since: Duration, stream: usize, bytes: u64) {
        let number = since.as_ns() / self.length.as_ns();
        if number > self.number {
            self.end();
            self.number = number;
        }
        self.bytes[stream] += bytes;
    }

    fn end(&mut self) {
        if self.bytes.iter().any(|&b| b > 0) && self.each.len() < SECTIONS_MAX {
            self.each.push(balance(&self.bytes));
        }
        self.bytes.fill(0);
    }

    fn finish(mut self) -> Sections {
        self.end();
        let median = |of: fn(&(f64, f64)) -> f64| {
            let mut all: Vec<f64> = self.each.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or(0.0)
        };
        Sections {
            length: self.length,
            min_to_mean: median(|b| b.0),
            jain: median(|b| b.1),
        }
    }
}

/// The least over the mean, and Jain's index (sum of x)^2 / (n sum of x^2): Jain, Chiu, Hawe, DEC-TR-301,
/// 1984.
#[allow(clippy::cast_precision_loss, reason = "bytes of a log are below 2^53")]
fn balance(bytes: &[u64]) -> (f64, f64) {
    let n = bytes.len() as f64;
    let sum: f64 = bytes.iter().map(|&b| b as f64).sum();
    let squares: f64 = bytes.iter().map(|&b| b as f64 * b as f64).sum();
    let least = bytes.iter().min().copied().unwrap_or(0) as f64;
    if sum == 0.0 {
        return (0.0, 0.0);
    }
    (least * n / sum, sum * sum / (n * squares))
}

/// A silence that parts the bursts of two round trips.
const PAUSE: Duration = Duration::from_ms(10);
/// A stream has at least one part in so many of the largest one's bytes.
const STREAM_OF: u64 = 100;
const FLOWS_MAX: usize = 65_536;
const SECTIONS_MAX: usize = 1 << 22;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(decision: Code, at_us: u64, count: u16) -> Row {
        Row {
            time: Instant::from_ns(at_us * 1_000),
            time_step_fs: 0,
            departs: Instant::from_ns(at_us * 1_000),
            departs_step_fs: 0,
            frame: 0,
            queue_bytes: 0,
            queue_packets: 0,
            wire_bytes: 1_000,
            first: 0,
            count,
            link: 0,
            stage: 0,
            decision,
            flow: 0,
            detail: 0,
        }
    }

    #[test]
    fn the_orders_of_bursts_and_losses_are_told() {
        let mut b = Builder::new(3, &[], None);
        for (stream, at) in [(0, 0), (1, 1_000), (2, 2_000)] {
            b.take(&row(Code::QUEUED, at, 4), stream, None);
        }
        // The next round trip, in another order, in which 1 and 0 lose.
        for (stream, at) in [(2, 300_000), (0, 301_000), (1, 302_000)] {
            b.take(&row(Code::QUEUED, at, 4), stream, None);
        }
        b.take(&row(Code::QUEUE_FULL, 302_100, 2), 1, None);
        b.take(&row(Code::QUEUE_FULL, 302_200, 1), 0, None);
        for (stream, at) in [(0, 600_000), (1, 601_000), (2, 602_000)] {
            b.take(&row(Code::QUEUED, at, 4), stream, None);
        }
        b.take(&row(Code::QUEUE_FULL, 602_200, 1), 2, None);
        let told = b.finish(String::new());
        assert_eq!(told.burst_order, [2, 0, 1]);
        assert_eq!(told.loss_order, [1, 0, 2]);
        let first = told
            .streams
            .iter()
            .map(|s| s.first_lost.map(Duration::as_ns));
        assert!(first.eq([302_200_000, 302_100_000, 602_200_000].map(Some)));
        assert_eq!(told.streams[1].lost, 2);
    }

    #[test]
    fn balance_is_that_of_the_bytes_and_of_each_section() {
        let ms = Duration::from_ms(1);
        let mut b = Builder::new(2, &[ms], Some(8_000));
        // In the first two sections alike, in the last none of stream 1; the fourth is empty.
        for (stream, at, count) in [
            (0, 0, 3),
            (1, 1, 3),
            (0, 1_000, 2),
            (1, 1_001, 2),
            (0, 2_000, 5),
            (0, 4_000, 5),
        ] {
            b.take(&row(Code::SERVED, at, count), stream, None);
        }
        let told = b.finish(String::new());
        // 15,000 and 5,000 bytes.
        assert!((told.min_to_mean - 0.5).abs() < 1e-9 && (told.jain - 0.8).abs() < 1e-9);
        assert_eq!(told.streams[0].striped, Some(ms));
        assert_eq!(told.streams[1].striped, Some(Duration::from_us(1_001)));
        // Of sections with 1, 1, 0, 0 the median, upper of two.
        assert!((told.sections[0].min_to_mean - 1.0).abs() < 1e-9);
        assert_eq!(told.time, Duration::from_ms(4));
    }
}
