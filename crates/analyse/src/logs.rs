//! A lab's packet log explained: its connections as a capture at each sender's port would show them, and
//! what the lab lost of them and why.
//!
//! What a log says of a connection goes before what its packets look like: a loss that the lab made at
//! random is not taken for a queue that overflowed, nor the other way round, also where the connection
//! itself comes from a capture that was made beside the log.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::Path;

use explain::pairing::Dropped;
use explain::passive;
use explain::reasons::{self, Lossy};
use explain::trace::{Connection, Limits, Tracker};
use lab::log::{Fate, Reason, Segments};
use link::record::{Code, MAGIC, Reader};
use report::model::{Trace, TraceDrops, TraceFile, TraceLog};
use units::Instant;
use wire::segment::FlowKey;

use crate::names::{endpoint, name_of};
use crate::ranking::{Judged, Ranking};
use crate::tables::Tables;
use fault::Failure;
use job::{Context, record};

/// What a log says beyond its connections.
pub(crate) struct LogFacts {
    pub(crate) facts: TraceLog,
    /// Why segments were lost, in words.
    pub(crate) reasons: Vec<String>,
    /// The segments that were, a bounded number.
    pub(crate) drops: Vec<Dropped>,
    ways: HashMap<(FlowKey, u8), Way>,
    codes: Vec<Reason>,
}

/// What a log says of one direction of a connection.
#[derive(Default)]
struct Way {
    /// Where it comes in.
    port: Option<u16>,
    lost: Vec<Loss>,
}

#[derive(Clone, Copy, Default)]
struct Loss {
    reason: u16,
    data_segments: u64,
    data_bytes: u64,
    control_segments: u64,
}

/// Whether a file is a lab's packet log.
pub(crate) fn is_log(path: &Path) -> bool {
    let mut head = [0; MAGIC.len()];
    // A pipe's writer would find nobody after the first look.
    let regular = path.is_file() && path.as_os_str() != "-";
    let is_read = |mut file: File| file.read_exact(&mut head).is_ok();
    regular && sys::folder::input(path).is_ok_and(is_read) && head == MAGIC
}

/// Reads a log: its connections go where those of captures go.
pub(crate) fn read(
    path: &Path,
    number: u32,
    trace: &mut Trace,
    best: &mut Ranking,
    context: &Context,
) -> Result<(TraceFile, LogFacts), Failure> {
    let name = path.display();
    let wrong = |e: &dyn std::fmt::Display| Failure::usage(format!("{name}: {e}"));
    let bytes = sys::map::File::open(path);
    let bytes = bytes.map_err(|e| wrong(&e))?;
    if bytes.len() > LOG_BYTES_MAX {
        return Err(wrong(
            &"larger than 2 GiB; cut it with `goodput lab log --pcapng` and filters",
        ));
    }
    let segments = Segments::read(Reader::new(&bytes).map_err(|e| wrong(&e))?);
    let mut told = LogFacts::begin(&segments, number);
    let mut span: Option<(u64, u64)> = None;
    segments.for_each(|seen| {
        let (first, last) = span.unwrap_or((seen.time_ns, seen.time_ns));
        span = Some((first.min(seen.time_ns), last.max(seen.time_ns)));
        told.take(seen);
        flow_on(context)
    });
    let begins = Instant::from_ns(span.map_or(0, |(first, _)| first));
    let sent = Sent {
        number,
        begins,
        told: &told,
        tables: best.tables.clone(),
        kept: Vec::new(),
        with_data: 0,
        payload_bytes: 0,
        lost_bytes: 0,
    };
    let (packets, sent) = sent.of_all(&segments, context);
    if context.stop.is_stopped() {
        return Err(Failure::interrupted(context.interrupted().unwrap_or(130)));
    }
    trace.packets += packets;
    trace.tcp_packets += packets;
    trace.connections_seen += u64::try_from(told.ways.len().div_ceil(2)).unwrap_or(u64::MAX);
    trace.connections_with_data += sent.with_data;
    trace.payload_bytes += sent.payload_bytes;
    trace.lost_bytes += sent.lost_bytes;
    for judged in sent.kept {
        if let Some(weight) = passive::weigh(&judged.connection) {
            best.add(number, judged.connection, weight);
        }
    }
    best.set_begins(number, begins);
    told.conclude();
    let file = TraceFile {
        name: name_of(path),
        packets,
        begins_utc: span.map(|(first, _)| record::utc_of_ns(first)),
        span_ns: span.map_or(0, |(first, last)| last - first),
        interfaces: segments.legend().ports.iter().take(64).cloned().collect(),
        stopped: (!told.facts.complete).then(|| "decisions or its end are missing".to_owned()),
        ..TraceFile::default()
    };
    Ok((file, told))
}

/// Connections of a log, each as its sender saw it.
struct Sent<'t> {
    number: u32,
    begins: Instant,
    told: &'t LogFacts,
    /// Where all of them go, if anywhere.
    tables: Option<Tables>,
    kept: Vec<Judged>,
    with_data: u64,
    payload_bytes: u64,
    lost_bytes: u64,
}

impl Sent<'_> {
    /// Follows all packets; how many came in, and the connections.
    fn of_all(mut self, segments: &Segments<'_>, context: &Context) -> (u64, Self) {
        let limits = Limits {
            seed: RandomState::new().hash_one(self.number),
            ..Limits::default()
        };
        let mut tracker = Tracker::new(limits, |connection| self.take(connection));
        let mut packets = 0;
        segments.for_each(|seen| {
            let (Fate::Came(port) | Fate::Left(port)) = seen.fate else {
                return ControlFlow::Continue(());
            };
            packets += u64::from(matches!(seen.fate, Fate::Came(_)));
            let time = Instant::from_ns(seen.time_ns);
            tracker.take(time, seen.frame, u32::from(port), seen.segment);
            flow_on(context)
        });
        tracker.finish();
        drop(tracker);
        (packets, self)
    }

    /// Takes a connection that carried data, unless it is as its receiver saw it.
    fn take(&mut self, connection: Connection) {
        let Some(passive) = passive::judge(&connection) else {
            return;
        };
        let way = self.told.ways.get(&(connection.flow, passive.sender));
        if way.and_then(|w| w.port).map(u32::from) != Some(connection.interface) {
            return;
        }
        if let Some(tables) = &self.tables {
            tables.take(self.number, &connection);
        }
        self.with_data += 1;
        self.payload_bytes += connection.sides[usize::from(passive.sender)].unique_bytes;
        self.lost_bytes += passive.lost.as_u64();
        self.kept.push(Judged {
            file: self.number,
            begins: self.begins,
            connection,
            passive,
        });
        // The page shows as many, and these are a log's own.
        if self.kept.len() > HELD_MAX {
            self.kept.sort_by_key(|j| std::cmp::Reverse(j.passive.lost));
            self.kept.truncate(HELD_MAX / 2);
        }
    }
}

fn flow_on(context: &Context) -> ControlFlow<()> {
    match context.stop.is_stopped() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

impl LogFacts {
    fn begin(segments: &Segments<'_>, number: u32) -> Self {
        let trusted = segments.trusted();
        let missing = trusted.lost_rows + trusted.lost_frames + trusted.malformed_blocks;
        let words = |r: &Reason| format!("{} at {}/{}", r.decision, r.link, r.stage);
        Self {
            facts: TraceLog {
                file: number,
                complete: missing == 0 && !trusted.interrupted && trusted.truncated_at.is_none(),
                ..TraceLog::default()
            },
            reasons: segments.reasons().iter().map(words).collect(),
            drops: Vec::new(),
            ways: HashMap::new(),
            codes: segments.reasons().to_vec(),
        }
    }

    fn take(&mut self, seen: &lab::log::Seen<'_>) {
        let segment = seen.segment;
        let key = (segment.flow, segment.from & 1);
        if self.ways.len() >= WAYS_MAX && !self.ways.contains_key(&key) {
            return;
        }
        let way = self.ways.entry(key).or_default();
        let data = u64::from(segment.payload_bytes > 0);
        match seen.fate {
            Fate::Came(port) => {
                way.port.get_or_insert(port);
                self.facts.data_segments += data;
                self.facts.control_segments += 1 - data;
            }
            Fate::Lost(reason) => {
                self.facts.data_lost += data;
                self.facts.control_lost += 1 - data;
                let known = way.lost.iter().position(|l| l.reason == reason);
                let at = known.unwrap_or_else(|| {
                    way.lost.push(Loss {
                        reason,
                        ..Loss::default()
                    });
                    way.lost.len() - 1
                });
                let loss = &mut way.lost[at];
                loss.data_segments += data;
                loss.control_segments += 1 - data;
                loss.data_bytes += u64::from(segment.payload_bytes);
                if data == 1 && self.drops.len() < DROPS_MAX {
                    self.drops.push(Dropped {
                        flow: segment.flow,
                        from: segment.from & 1,
                        sequence: segment.sequence,
                        bytes: segment.payload_bytes,
                        time_ns: seen.time_ns,
                        reason,
                    });
                }
            }
            Fate::Left(_) => {}
        }
    }

    /// Sums up.
    fn conclude(&mut self) {
        let mut rows: Vec<((FlowKey, u8), Loss)> = Vec::new();
        for (key, way) in &self.ways {
            rows.extend(way.lost.iter().map(|loss| (*key, *loss)));
        }
        rows.sort_by_key(|((flow, from), l)| {
            let segments = l.data_segments + l.control_segments;
            (std::cmp::Reverse(segments), *flow, *from, l.reason)
        });
        let mut by_reason: Vec<(u16, u64)> = Vec::new();
        for (_, loss) in &rows {
            match by_reason.iter_mut().find(|(r, _)| *r == loss.reason) {
                Some((_, n)) => *n += loss.data_segments,
                None => by_reason.push((loss.reason, loss.data_segments)),
            }
        }
        by_reason.retain(|(_, n)| *n > 0);
        by_reason.sort_by_key(|(r, n)| (std::cmp::Reverse(*n), *r));
        self.facts.sentence = self.sentence(&by_reason);
        let drops = rows.iter().take(ROWS_MAX).map(|((flow, from), loss)| {
            let reason = self.codes.get(usize::from(loss.reason));
            let text = |of: fn(&Reason) -> &String| reason.map(of).cloned().unwrap_or_default();
            TraceDrops {
                sender: endpoint(flow, usize::from(*from)),
                receiver: endpoint(flow, usize::from(1 - from)),
                decision: text(|r| &r.decision),
                link: text(|r| &r.link),
                stage: text(|r| &r.stage),
                data_segments: loss.data_segments,
                data_bytes: loss.data_bytes,
                control_segments: loss.control_segments,
            }
        });
        self.facts.drops = drops.collect();
    }

    fn sentence(&self, by_reason: &[(u16, u64)]) -> String {
        let f = &self.facts;
        let named: Vec<String> = by_reason
            .iter()
            .take(NAMED_MAX)
            .map(|(reason, n)| format!("{n} {}", self.words(*reason)))
            .collect();
        let why = match named.as_slice() {
            [] => String::new(),
            named => format!(": {}", named.join(", ")),
        };
        format!(
            "The lab lost {} of {} TCP segments with data{why}; and {} of {} without",
            f.data_lost, f.data_segments, f.control_lost, f.control_segments
        )
    }

    /// A reason in words.
    pub(crate) fn words(&self, reason: u16) -> &str {
        let known = self.reasons.get(usize::from(reason));
        known.map_or("lost", String::as_str)
    }

    /// What it says of one direction.
    fn lossy(&self, flow: FlowKey, from: u8) -> Option<Vec<Lossy>> {
        let way = self.ways.get(&(flow, from))?;
        let lost = way.lost.iter().filter(|l| l.data_segments > 0);
        let all = lost.map(|loss| Lossy {
            kind: self
                .codes
                .get(usize::from(loss.reason))
                .map_or(reasons::Kind::Line, |r| kind(r.code)),
            segments: loss.data_segments,
            words: self.words(loss.reason).to_owned(),
        });
        Some(all.collect())
    }
}

/// Gives connections the reasons that logs know.
pub(crate) fn tell(kept: &mut [Judged], logs: &[LogFacts]) {
    for judged in kept {
        let (flow, sender) = (judged.connection.flow, judged.passive.sender);
        if let Some(lossy) = logs.iter().find_map(|log| log.lossy(flow, sender)) {
            reasons::tell(&mut judged.passive, &lossy);
        }
    }
}

/// What kind of loss a decision is.
const fn kind(code: Code) -> reasons::Kind {
    match code {
        Code::QUEUE_FULL | Code::EARLY_DROP | Code::SHARED_BUFFER => reasons::Kind::Queue,
        Code::BUDGET_FULL => reasons::Kind::PacketRate,
        Code::POLICED | Code::FLOW_CAP => reasons::Kind::Policer,
        _ => reasons::Kind::Line,
    }
}

/// As of `goodput report` of a log.
const LOG_BYTES_MAX: usize = 2 << 30;
/// Segments that are held against captures: 56 MiB.
const DROPS_MAX: usize = 1 << 20;
const WAYS_MAX: usize = 1 << 17;
const HELD_MAX: usize = 400;
const ROWS_MAX: usize = 1_000;
const NAMED_MAX: usize = 4;
