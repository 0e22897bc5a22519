//! What a report shows of a log: queues over time, drops by cause over time, and in which order
//! flows came to a queue.
//!
//! Time is cut into at most a thousand bins, more than a picture has columns. Depths are those that
//! decisions saw: bytes with the newcomers in when they were taken in, bytes that still waited when
//! others had been sent. A queue is deepest at the former and least deep at the latter.
//!
//! A row is counted at its link and stage. Losses at a switch or router are those of the link that
//! leads there, at the stage `node`, as drops without a queue. What the legend does not name is
//! counted together, as `other`, and so is everything new once there are [`SERIES_MAX`] queues and
//! causes: no log makes a summary of more than some hundred megabytes beside what grows with the
//! file itself.

use std::collections::{BTreeMap, HashMap};

use link::record::{Code, Reader, Row};
use units::{Duration, Instant};

use super::contents::Contents;
use super::convert::Converted;
use super::legend::NODE_STAGE;

/// A log in some thousand numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The first time in the log.
    pub start: Instant,
    /// Width of a bin; at least 1 ns.
    pub bin: Duration,
    /// Number of bins, at most [`BINS_MAX`]; 0 when the log is empty.
    pub bins: usize,
    /// The links of the legend by their number, then what is counted at none of them, if anything.
    pub links: Vec<LinkSummary>,
    /// How far the log can be trusted; `written` counts the decisions on segments.
    pub read: Converted,
}

/// One link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkSummary {
    /// Its name; empty for what is counted at no link of the legend: no log of this version has
    /// any, unless it is damaged.
    pub name: String,
    /// Its queues by the number of their stage, those of unknown stages as one.
    pub queues: Vec<QueueSummary>,
    /// Its drops by their cause.
    pub drops: Vec<DropSeries>,
}

/// One queue: a stage that took segments in or turned them away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueSummary {
    /// The stage's name; `other` for stages that the legend does not name.
    pub stage: String,
    /// Depth in each bin; `None` where nothing was decided: the queue was empty or just drained.
    pub depths: Vec<Option<Depth>>,
    /// The flows in the order of their first arrivals.
    pub flows: Vec<FlowAtQueue>,
    /// Arrivals in the order of the decisions, runs of one flow and one fate as one; at most
    /// [`ARRIVALS_MAX`].
    pub arrivals: Vec<Arrival>,
    /// Segments that came after those.
    pub segments_left_out: u64,
}

/// Least and greatest depth that decisions saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Least bytes.
    pub min_bytes: u64,
    /// Most bytes.
    pub max_bytes: u64,
}

/// Segments of one flow that came to a queue one after the other and shared their fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the first came.
    pub time: Instant,
    /// Their flow.
    pub flow: u32,
    /// How many.
    pub segments: u64,
    /// True when the queue turned them away; those that it took in and threw out later came
    /// without.
    pub dropped: bool,
}

/// One flow at a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowAtQueue {
    /// The flow.
    pub flow: u32,
    /// Segments that came.
    pub arrived: u64,
    /// Of these, turned away or thrown out later.
    pub dropped: u64,
    /// Bytes on the wire that came.
    pub wire_bytes: u64,
    /// Times at which the flow's segments followed another flow's, the first time included: of two
    /// flows that alternate, half of the arrivals; of flows in bursts, few.
    pub turns: u64,
}

/// Drops of one cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropSeries {
    /// The cause.
    pub cause: Code,
    /// Segments in the whole log.
    pub total: u64,
    /// Segments in each bin.
    pub per_bin: Vec<u64>,
}

impl Summary {
    /// Reads a log.
    pub fn read(reader: Reader<'_>) -> Self {
        let contents = Contents::read(reader);
        let bins = Bins::of(&contents);
        let mut read = Converted::of(&contents);
        let named = contents.legend.links.len();
        let mut links = vec![LinkBuilder::default(); named + 1];
        let mut series_left = SERIES_MAX;
        for row in contents.rows() {
            read.written += u64::from(row.count);
            let (mut at, mut stage) = place(&contents, &row);
            let added = links[at].series_added(&row, stage);
            if added > series_left {
                (at, stage) = (named, OTHER_STAGE);
            } else {
                series_left -= added;
            }
            links[at].take(&row, stage, &bins);
        }
        let nameless = links.get(named).is_some_and(|link| !link.is_empty());
        links.truncate(named + usize::from(nameless));
        let finished = (0_u16..).zip(links);
        Self {
            start: bins.start,
            bin: bins.width,
            bins: bins.count,
            links: finished
                .map(|(i, link)| link.finish(i, &contents))
                .collect(),
            read,
        }
    }
}

/// The link, by its place in the summary, and the stage at which a row is counted.
fn place(contents: &Contents<'_>, row: &Row) -> (usize, u8) {
    let links = &contents.legend.links;
    let Some(link) = links.get(usize::from(row.link)) else {
        return (links.len(), OTHER_STAGE);
    };
    // One more than stages: the line's end.
    let is_named = usize::from(row.stage) <= link.stages.len() || row.stage == NODE_STAGE;
    let stage = if is_named { row.stage } else { OTHER_STAGE };
    (usize::from(row.link), stage)
}

/// How time is cut.
struct Bins {
    start: Instant,
    width: Duration,
    count: usize,
}

impl Bins {
    fn of(contents: &Contents<'_>) -> Self {
        let frames = contents
            .frames()
            .iter()
            .map(|frame| (frame.time, frame.time));
        let rows = contents.rows().map(|row| {
            let last = row.segment(row.count.saturating_sub(1));
            (row.time, last.time)
        });
        let span = frames
            .chain(rows)
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let Some((start, end)) = span else {
            return Self {
                start: Instant::ZERO,
                width: Duration::from_ns(1),
                count: 0,
            };
        };
        let span_ns = end.saturating_since(start).as_ns();
        let width_ns = span_ns / BINS_MAX + 1;
        Self {
            start,
            width: Duration::from_ns(width_ns),
            // At most BINS_MAX.
            count: usize::try_from(span_ns / width_ns + 1).unwrap_or(0),
        }
    }

    fn index(&self, time: Instant) -> usize {
        usize::try_from(self.number(time)).unwrap_or(usize::MAX)
    }

    fn number(&self, time: Instant) -> u64 {
        time.saturating_since(self.start).as_ns() / self.width.as_ns()
    }

    /// The first segment of the row from `k` on that is not in the bin of `k`: its count when there
    /// is none.
    fn next_bin(&self, row: &Row, k: u16) -> u16 {
        let bins = u128::from(self.number(row.segment(k).time)) + 1;
        let end_ns = u128::from(self.start.as_ns()) + bins * u128::from(self.width.as_ns());
        if row.time_step_fs == 0 || end_ns > u128::from(u64::MAX) {
            return row.count;
        }
        // Segment i is at time + i * step, rounded down: not before `end` from the first i on with
        // i * step >= end - time.
        let span_fs = end_ns.saturating_sub(row.time.as_ns().into()) * FS_PER_NS;
        let next = span_fs.div_ceil(row.time_step_fs.into());
        u16::try_from(next).map_or(row.count, |next| next.clamp(k + 1, row.count))
    }
}

/// A link while its rows are read.
#[derive(Clone, Debug, Default)]
struct LinkBuilder {
    queues: BTreeMap<u8, QueueBuilder>,
    drops: BTreeMap<Code, DropSeries>,
}

/// A queue likewise.
#[derive(Clone, Debug, Default)]
struct QueueBuilder {
    summary: QueueSummary,
    /// Where a flow stands in the summary.
    flows: HashMap<u32, usize>,
    last_flow: Option<u32>,
    /// Runs that were taken in, by their frame, until as many segments were served or thrown out.
    waiting: HashMap<u64, Waiting>,
}

/// Segments of one frame in a queue.
#[derive(Clone, Debug, Default)]
struct Waiting {
    /// First segment and number of each run, neighbours as one; at most [`RUNS_MAX`].
    runs: Vec<(u16, u16)>,
    /// Segments of these still in the queue.
    segments: u64,
}

impl Waiting {
    /// Runs beyond the most are left out: when they are thrown out they seem to come anew.
    fn push(&mut self, first: u16, count: u16) {
        let last = self.runs.last_mut();
        let joined = last.and_then(|last| {
            let together = last.1.checked_add(count)?;
            (last.0.checked_add(last.1) == Some(first)).then(|| last.1 = together)
        });
        if joined.is_none() {
            if self.runs.len() == RUNS_MAX {
                return;
            }
            self.runs.push((first, count));
        }
        self.segments += u64::from(count);
    }
}

impl LinkBuilder {
    fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.drops.is_empty()
    }

    /// How many queues and causes the row would add.
    fn series_added(&self, row: &Row, stage: u8) -> usize {
        let (code, queues, drops) = (row.decision, &self.queues, &self.drops);
        usize::from(code.is_by_queue() && !queues.contains_key(&stage))
            + usize::from(code.is_drop() && !drops.contains_key(&code))
    }

    fn take(&mut self, row: &Row, stage: u8, bins: &Bins) {
        if row.decision.is_by_queue() {
            self.queues.entry(stage).or_default().take(row, bins);
        }
        if row.decision.is_drop() {
            let series = self.drops.entry(row.decision).or_default();
            series.cause = row.decision;
            series.take(row, bins);
        }
    }

    fn finish(self, number: u16, contents: &Contents<'_>) -> LinkSummary {
        let legend = &contents.legend;
        let link = legend.links.get(usize::from(number));
        let queues = self.queues.into_iter().map(|(stage, queue)| QueueSummary {
            stage: match stage {
                OTHER_STAGE => "other".to_owned(),
                _ => legend.stage(number, stage).unwrap_or_default().into_owned(),
            },
            ..queue.summary
        });
        LinkSummary {
            name: link.map(|link| link.name.clone()).unwrap_or_default(),
            queues: queues.collect(),
            drops: self.drops.into_values().collect(),
        }
    }
}

impl DropSeries {
    fn take(&mut self, row: &Row, bins: &Bins) {
        self.per_bin.resize(bins.count, 0);
        self.total += u64::from(row.count);
        let mut k = 0;
        while k < row.count {
            let next = bins.next_bin(row, k);
            self.add(bins.index(row.segment(k).time), u64::from(next - k));
            k = next;
        }
    }

    fn add(&mut self, bin: usize, segments: u64) {
        if let Some(place) = self.per_bin.get_mut(bin) {
            *place += segments;
        }
    }
}

impl QueueBuilder {
    fn take(&mut self, row: &Row, bins: &Bins) {
        let was_waiting = self.follow(row);
        if row.decision.is_drop() && was_waiting {
            // It came before, and when it was thrown out is not told.
            self.flow_of(row).dropped += u64::from(row.count);
            return;
        }
        self.depth(row, bins);
        if row.decision != Code::SERVED {
            self.flow(row);
            self.arrival(row);
            self.last_flow = Some(row.flow);
        }
    }

    /// Keeps account of what waits; true when the row's first segment did.
    fn follow(&mut self, row: &Row) -> bool {
        if row.decision == Code::QUEUED {
            let waiting = self.waiting.entry(row.frame).or_default();
            waiting.push(row.first, row.count);
            return false;
        }
        let Some(waiting) = self.waiting.get_mut(&row.frame) else {
            return false;
        };
        let is_inside = |&(first, count): &(u16, u16)| {
            row.first.checked_sub(first).is_some_and(|at| at < count)
        };
        if !waiting.runs.iter().any(is_inside) {
            return false;
        }
        waiting.segments = waiting.segments.saturating_sub(row.count.into());
        if waiting.segments == 0 {
            self.waiting.remove(&row.frame);
        }
        true
    }

    /// A run that was taken in is seen at its end, one that was sent when it has left, one that was
    /// turned away at its beginning.
    fn depth(&mut self, row: &Row, bins: &Bins) {
        let last = row.segment(row.count.saturating_sub(1));
        let seen = match row.decision {
            Code::QUEUED => last.time,
            Code::SERVED => last.departs.unwrap_or(Instant::MAX),
            _ => row.time,
        };
        self.summary.depths.resize(bins.count, None);
        if let Some(place) = self.summary.depths.get_mut(bins.index(seen)) {
            let before = place.unwrap_or(Depth {
                min_bytes: u64::MAX,
                max_bytes: 0,
            });
            *place = Some(Depth {
                min_bytes: before.min_bytes.min(row.queue_bytes),
                max_bytes: before.max_bytes.max(row.queue_bytes),
            });
        }
    }

    fn flow(&mut self, row: &Row) {
        let segments = u64::from(row.count);
        let is_turn = self.last_flow != Some(row.flow);
        let flow = self.flow_of(row);
        flow.arrived += segments;
        flow.wire_bytes += segments * u64::from(row.wire_bytes);
        flow.turns += u64::from(is_turn);
        if row.decision.is_drop() {
            flow.dropped += segments;
        }
    }

    fn flow_of(&mut self, row: &Row) -> &mut FlowAtQueue {
        let flows = &mut self.summary.flows;
        let at = *self.flows.entry(row.flow).or_insert(flows.len());
        if at == flows.len() {
            flows.push(FlowAtQueue {
                flow: row.flow,
                ..FlowAtQueue::default()
            });
        }
        &mut flows[at]
    }

    fn arrival(&mut self, row: &Row) {
        let segments = u64::from(row.count);
        let dropped = row.decision.is_drop();
        let summary = &mut self.summary;
        let last = summary.arrivals.last_mut().filter(|last| {
            last.flow == row.flow && last.dropped == dropped && summary.segments_left_out == 0
        });
        if let Some(last) = last {
            last.segments += segments;
        } else if summary.arrivals.len() < ARRIVALS_MAX {
            summary.arrivals.push(Arrival {
                time: row.time,
                flow: row.flow,
                segments,
                dropped,
            });
        } else {
            summary.segments_left_out += segments;
        }
    }
}

/// Most bins.
pub const BINS_MAX: u64 = 1_000;
/// Most runs of arrivals that a queue's summary keeps: a few megabytes.
pub const ARRIVALS_MAX: usize = 100_000;
/// Most queues and causes of drops that are counted apart, up to 24 kB each: a lab has a few hundred.
pub const SERIES_MAX: usize = 4_096;
/// Most runs of one frame whose way through a queue is followed. A frame of 45 segments has no more
/// runs than segments; in a log that repeats one number each row would look through all before.
const RUNS_MAX: usize = 1_024;
/// Stands for all stages that the legend does not name; no pipeline is as long.
const OTHER_STAGE: u8 = NODE_STAGE - 1;
/// Femtoseconds in a nanosecond.
const FS_PER_NS: u128 = 1_000_000;
