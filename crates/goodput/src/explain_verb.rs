//! `goodput explain`: captures read, every TCP connection in them, and why it was no faster.
//!
//! A file is read twice: once for the facts of all connections, and once more for the time-sequence graphs
//! of those that lost most. Standard input is read once, and has no graphs. An interface is captured into
//! the run folder while its packets are analysed; then that file is read for the graphs. A path is filled,
//! and captured, first.
//!
//! Two captures of one path are also matched with each other ([`pair`]); a lab's packet log stands for a
//! capture at each port, and says why segments were lost ([`logs`]).

mod feed;
mod live;
mod logs;
pub(crate) mod observed;
mod pair;
mod planted;
mod source;
mod spacing;
mod tables;
mod threads;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use capture::file::{self, Capture};
use explain::passive::{self, Passive, Weight};
use explain::timeline::Timeline;
use explain::trace::{CapturePoint, Connection, End, Limit, SideFacts, Slices, Spread, Start};
use report::RunFolder;
use report::model::{
    self, FindingRecord, Run, RunState, Trace, TraceConnection, TraceFile, TraceGraph,
    TraceRetransmissions, TraceShare, TraceSlices, TraceTables, Verdict as RunVerdict,
};
use units::{Duration, Instant};
use wire::segment::{FlowKey, Segment};

use crate::cli::ExplainArgs;
use crate::context::{self, Context};
use crate::failure::{self, Failure, Verdict};
use crate::record;

/// Explains the captures.
pub(crate) fn command(args: &ExplainArgs, context: &Context) -> Verdict {
    let explained = perform(args, context)?;
    let run = &explained.run;
    if args.json {
        context::print_json(run)?;
    } else {
        let findings = &explained.findings;
        let summary = report::terminal::summary(run, findings, context::color(), context::width());
        context::print_colored(&summary)?;
        context::print("\n")?;
        context::print_place("Report", &explained.folder.join("report.html"))?;
        if let Some(rows) = run.trace.as_ref().and_then(|t| t.table_rows) {
            context::print(&format!(
                "Tables: {} ({} rows), {} ({} rows)\n",
                explained.folder.join(tables::CONNECTIONS_FILE).display(),
                rows.connections,
                tables::INTERVALS_FILE,
                rows.intervals
            ))?;
        }
    }
    let any = run
        .trace
        .as_ref()
        .is_some_and(|t| !t.connections.is_empty());
    match any {
        true => Ok(failure::DONE),
        false => Ok(failure::CHECK_FAILED),
    }
}

/// What was found, and where it is kept.
pub(crate) struct Explained {
    pub(crate) run: Run,
    pub(crate) findings: Vec<FindingRecord>,
    pub(crate) folder: PathBuf,
}

/// Explains what the arguments name.
pub(crate) fn perform(args: &ExplainArgs, context: &Context) -> Result<Explained, Failure> {
    let source = source::Source::of(args)?;
    let mut question = source::question(args, &source)?;
    let (mut trace, mut best) = (Trace::default(), Ranking::default());
    let mut told = Vec::new();
    let mut read_all = |files: &[PathBuf], trace: &mut Trace, best: &mut Ranking| {
        for (number, path) in (0_u32..).zip(files) {
            let file = if logs::is_log(path) {
                let (file, log) = logs::read(path, number, trace, best, context)?;
                told.push(log);
                file
            } else {
                read(path, number, args, trace, best, context)?
            };
            trace.files.push(file);
        }
        Ok::<(), Failure>(())
    };
    let mut folder = None;
    let mut is_live = false;
    let files = match source {
        source::Source::Files(files) => {
            if args.parquet {
                let name = files.first().map(|path| name_of(path));
                let own = begin(args, context, &name.unwrap_or_default())?;
                best.tables = Some(tables::Tables::create(own.path())?);
                folder = Some(own);
            }
            let tables = best.tables.clone();
            if let Err(failure) = read_all(&files, &mut trace, &mut best) {
                // As without tables, a capture that cannot be read leaves no folder.
                if let Some((own, tables)) = folder.zip(tables) {
                    tables.discard();
                    own.discard();
                }
                return Err(failure);
            }
            files
        }
        source::Source::Interface(options) => {
            let (own, file) = live::explain(args, *options, context, &mut trace, &mut best)?;
            folder = Some(own);
            // Ctrl-C has ended the capture, not the analysis.
            is_live = true;
            vec![file]
        }
        source::Source::Path(path) => {
            let own = begin(args, context, &source::title(&path))?;
            let (file, line) = planted::capture(args, &path, own.path(), &context.stop)?;
            question = question.map(|q| q.with_line(line));
            if args.parquet {
                best.tables = Some(tables::Tables::create(own.path())?);
            }
            folder = Some(own);
            let files = vec![file];
            read_all(&files, &mut trace, &mut best)?;
            files
        }
    };
    if let Some(tables) = best.tables.take() {
        let written = tables.finish()?;
        trace.table_rows = Some(TraceTables {
            connections: written.connections,
            intervals: written.intervals,
        });
    }
    let is_stopped = || !is_live && context.stop.is_stopped();
    let mut kept = best.into_sorted();
    logs::tell(&mut kept, &told);
    let graphs = graphs(&files, &kept, &is_stopped)?;
    let mut findings = Vec::new();
    for (n, (judged, graphs)) in kept.iter_mut().zip(graphs).enumerate() {
        let number = u32::try_from(n + 1).unwrap_or(u32::MAX);
        findings.extend(finding_records(judged, number));
        trace.connections.push(connection(judged, number, graphs));
    }
    if !is_live && let Some((pair, of_pair)) = pair::run(args, &files, &told, context)? {
        trace.pair = Some(pair);
        findings.extend(of_pair);
    }
    trace.logs = told.into_iter().map(|log| log.facts).collect();
    if let Some(question) = question {
        let (counted, streams) = spacing::count(&files, &kept, &question, &is_stopped)?;
        for one in &counted {
            if let Some(connection) = trace.connections.get_mut(one.of) {
                connection.spacing = Some(one.found(&question));
            }
        }
        trace.streams = streams;
        if args.observer.is_some() {
            trace.observer = Some(observed::tshark(&files, &counted, &question)?);
        }
    }
    if is_stopped() {
        return Err(Failure::interrupted(context.interrupted().unwrap_or(130)));
    }
    finish(args, context, folder, trace, &kept, findings)
}

/// One connection with what was found of it.
#[derive(Debug)]
struct Judged {
    file: u32,
    /// Time of the file's first packet.
    begins: Instant,
    connection: Connection,
    passive: Passive,
}

impl Judged {
    /// Payload of the side that is judged, each byte once.
    fn carried(&self) -> u64 {
        let side = usize::from(self.passive.sender);
        self.connection.sides[side].unique_bytes
    }
}

/// What connections are ordered by, the one to go first last: bytes lost, bytes carried, the earlier first
/// frame; and its place.
type Rank = (u64, u64, Reverse<u64>, usize);

/// Those that lost most, a bounded number.
#[derive(Default)]
struct Ranking {
    kept: BinaryHeap<Reverse<Rank>>,
    places: Vec<Option<Box<Judged>>>,
    /// Where all connections go, whatever their rank.
    tables: Option<tables::Tables>,
}

impl Ranking {
    /// Takes a connection of file `file` that carried data, and judges it if it belongs to them.
    fn add(&mut self, file: u32, connection: Connection, weight: Weight) {
        let (lost, carried) = (weight.lost.as_u64(), weight.carried.as_u64());
        let first = Reverse(connection.first.frame);
        let full = self.kept.len() >= KEPT_MAX;
        let worst = self.kept.peek().map(|Reverse(w)| (w.0, w.1, w.2));
        if full && worst.is_some_and(|w| (lost, carried, first) <= w) {
            return;
        }
        let Some(passive) = passive::judge(&connection) else {
            return;
        };
        let judged = Judged {
            file,
            begins: Instant::ZERO,
            connection,
            passive,
        };
        let place = match full.then(|| self.kept.pop()).flatten() {
            Some(Reverse(gone)) => gone.3,
            None => {
                self.places.push(None);
                self.places.len() - 1
            }
        };
        self.places[place] = Some(Box::new(judged));
        self.kept.push(Reverse((lost, carried, first, place)));
    }

    /// Says when a file's first packet was.
    fn set_begins(&mut self, file: u32, begins: Instant) {
        let kept = self.places.iter_mut().flatten();
        kept.filter(|judged| judged.file == file)
            .for_each(|judged| judged.begins = begins);
    }

    /// The one that lost most first.
    fn into_sorted(mut self) -> Vec<Judged> {
        let order = mem::take(&mut self.kept).into_sorted_vec();
        let places = order
            .into_iter()
            .filter_map(|Reverse(w)| self.places[w.3].take());
        places.map(|judged| *judged).collect()
    }
}

/// Reads one capture to its end.
fn read(
    path: &Path,
    number: u32,
    args: &ExplainArgs,
    trace: &mut Trace,
    best: &mut Ranking,
    context: &Context,
) -> Result<TraceFile, Failure> {
    let mut capture = open(path)?;
    let fed = feed::analyse(number, threads::count(args), trace, best, |feed| {
        capture.for_each_segment(|packet, decoded, segment| {
            feed.take(
                packet.time_ns,
                packet.frame,
                packet.interface,
                decoded,
                segment,
            );
            match context.stop.is_stopped() {
                true => std::ops::ControlFlow::Break(()),
                false => std::ops::ControlFlow::Continue(()),
            }
        });
    })?;
    if context.stop.is_stopped() {
        return Err(Failure::interrupted(context.interrupted().unwrap_or(130)));
    }
    if let (0, Some(end @ (file::End::Stopped(_) | file::End::Failed { .. }))) =
        (fed.frames, capture.end())
    {
        let name = path.display();
        return Err(Failure::usage(anyhow::anyhow!("{name}: {end}")));
    }
    trace.unreadable_packets += feed::unreadable(&capture.kinds());
    Ok(described(path, &capture, fed.frames, fed.begins, fed.last))
}

fn described(
    path: &Path,
    capture: &Capture,
    packets: u64,
    begins: Option<u64>,
    last: u64,
) -> TraceFile {
    let interfaces = capture.interfaces();
    let dropped = interfaces.iter().filter_map(|i| {
        let of_interface = i.counters.dropped_by_interface;
        let of_system = i.counters.dropped_by_system;
        (of_interface.is_some() || of_system.is_some()).then(|| {
            of_interface
                .unwrap_or(0)
                .saturating_add(of_system.unwrap_or(0))
        })
    });
    let (stopped, at) = match capture.end() {
        Some(file::End::Stopped(stopped)) => (Some(stopped.why.to_string()), Some(stopped.offset)),
        Some(file::End::Failed { offset, error }) => (Some(error.to_string()), Some(*offset)),
        _ => (None, None),
    };
    TraceFile {
        name: name_of(path),
        packets,
        begins_utc: begins.map(record::utc_of_ns),
        span_ns: last.saturating_sub(begins.unwrap_or(last)),
        interfaces: interfaces
            .iter()
            .take(INTERFACES_MAX)
            .map(|i| i.name.clone())
            .collect(),
        dropped: dropped.reduce(u64::saturating_add),
        stopped,
        stopped_at_byte: at,
    }
}

/// Without folders.
fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn open(path: &Path) -> Result<Capture, Failure> {
    file::open(path)
        .map_err(|e| Failure::usage(anyhow::anyhow!("cannot read {}: {e}", path.display())))
}

/// A graph to be drawn: of which connection, and what.
struct Wanted {
    /// Place among the connections.
    of: usize,
    title: &'static str,
    timeline: Timeline,
    /// Frames of the connection: another one may have the same ports.
    frames: std::ops::RangeInclusive<u64>,
}

/// The graphs of each connection, in their order; none of standard input.
fn graphs(
    files: &[PathBuf],
    kept: &[Judged],
    is_stopped: &dyn Fn() -> bool,
) -> Result<Vec<Vec<TraceGraph>>, Failure> {
    let mut all: Vec<Vec<TraceGraph>> = kept.iter().map(|_| Vec::new()).collect();
    for (n, path) in files.iter().enumerate() {
        let drawn = kept.iter().enumerate().take(GRAPHED_MAX);
        // So few that looking at each takes less time than a hash.
        let mut wanted: Vec<((u32, FlowKey), Wanted)> = Vec::new();
        for (of, judged) in drawn.filter(|(_, j)| usize::try_from(j.file) == Ok(n)) {
            let key = (judged.connection.interface, judged.connection.flow);
            wanted.extend(windows(of, judged).into_iter().map(|graph| (key, graph)));
        }
        let last = wanted.iter().map(|(_, graph)| *graph.frames.end()).max();
        if wanted.is_empty() || path == &PathBuf::from("-") || logs::is_log(path) {
            continue;
        }
        let mut capture = open(path)?;
        capture.for_each_segment(|packet, decoded, segment: &Segment| {
            if decoded == wire::segment::Decoded::Tcp {
                let key = (packet.interface, segment.flow);
                let graphs = wanted.iter_mut().filter(|(of, _)| *of == key);
                for (_, graph) in graphs.filter(|(_, g)| g.frames.contains(&packet.frame)) {
                    graph
                        .timeline
                        .take(Instant::from_ns(packet.time_ns), segment);
                }
            }
            if is_stopped() || last.is_some_and(|last| packet.frame >= last) {
                return std::ops::ControlFlow::Break(());
            }
            std::ops::ControlFlow::Continue(())
        });
        for (_, graph) in wanted {
            let begins = kept[graph.of].begins;
            all[graph.of].push(drawn_graph(&graph, begins));
        }
    }
    Ok(all)
}

/// The whole connection; its begin; and around the slice in which most was sent again.
fn windows(of: usize, judged: &Judged) -> Vec<Wanted> {
    let connection = &judged.connection;
    let side = &connection.sides[usize::from(judged.passive.sender)];
    let frames = connection.first.frame..=connection.last.frame;
    let lasts = connection.last.time.saturating_since(connection.first.time);
    let shift = match connection.start {
        Start::Syn { .. } => None,
        Start::Midway => Some(0),
    };
    let graph = |title, begins: Instant, span: Duration| Wanted {
        of,
        title,
        timeline: Timeline::new(
            judged.passive.sender,
            begins,
            Duration::from_ns(span.as_ns().div_ceil(COLUMNS as u64).max(1)),
            COLUMNS,
            shift,
        ),
        frames: frames.clone(),
    };
    let mut all = vec![graph("The whole connection", connection.first.time, lasts)];
    let rtt = side.rtt_ahead.unwrap_or_default() + side.rtt_behind.unwrap_or_default();
    let detail = rtt.saturating_mul(12).max(Duration::from_ms(1));
    if detail.saturating_mul(3) > lasts {
        return all;
    }
    all.push(graph("Its begin", connection.first.time, detail));
    let Some(slices) = &side.slices else {
        return all;
    };
    let most = slices.list.iter().enumerate();
    let most = most.max_by_key(|(n, s)| (s.retransmitted_segments, Reverse(*n)));
    if let Some((n, _)) = most.filter(|(_, s)| s.retransmitted_segments > 0) {
        let at = slices.start + slices.width.saturating_mul(n as u64);
        let before = Duration::from_ns(detail.as_ns() / 4);
        let begins = Instant::from_ns(at.as_ns().saturating_sub(before.as_ns()));
        all.push(graph(
            "Where most was sent again",
            begins,
            detail.max(slices.width),
        ));
    }
    all
}

fn drawn_graph(graph: &Wanted, capture_begins: Instant) -> TraceGraph {
    let (begins, width) = graph.timeline.extent();
    let columns = graph.timeline.columns();
    let number = |column: usize| u32::try_from(column).unwrap_or(u32::MAX);
    let marks = |of: fn(&explain::timeline::Column) -> Option<(u64, u64)>| {
        let all = columns.iter().enumerate();
        all.filter_map(|(n, c)| of(c).map(|(low, high)| (number(n), low, high)))
            .collect::<Vec<_>>()
    };
    let changes = |of: fn(&explain::timeline::Column) -> Option<u64>| {
        let mut last = None;
        let all = columns.iter().enumerate();
        all.filter_map(|(n, c)| {
            let value = of(c)?;
            (last.replace(value) != Some(value)).then_some((number(n), value))
        })
        .collect::<Vec<_>>()
    };
    TraceGraph {
        title: graph.title.to_owned(),
        begins_ns: begins.saturating_since(capture_begins).as_ns(),
        column_ns: width.as_ns(),
        columns: number(columns.len()),
        sent: marks(|c| c.sent),
        again: marks(|c| c.again),
        sacked: marks(|c| c.sacked),
        acknowledged: changes(|c| c.acknowledged),
        edge: changes(|c| c.edge),
    }
}

fn finding_records(judged: &Judged, number: u32) -> Vec<FindingRecord> {
    let phase = number.to_string();
    let records = judged.passive.findings.iter();
    records.map(|f| record::finding(&phase, f)).collect()
}

fn connection(judged: &Judged, number: u32, mut graphs: Vec<TraceGraph>) -> TraceConnection {
    let Judged {
        connection: c,
        passive,
        ..
    } = judged;
    let (sender, receiver) = (
        usize::from(passive.sender),
        usize::from(1 - passive.sender.min(1)),
    );
    let (side, peer) = (&c.sides[sender], &c.sides[receiver]);
    graphs.sort_by_key(|g| (g.title != "The whole connection", g.begins_ns));
    let both = |of: fn(&SideFacts) -> bool| of(side) && of(peer);
    let r = &side.retransmissions;
    let ns = |d: Duration| d.as_ns();
    let handshake = c.handshake_to_server.zip(c.handshake_to_client);
    TraceConnection {
        number,
        file: judged.file,
        interface: c.interface,
        sender: endpoint(&c.flow, sender),
        receiver: endpoint(&c.flow, receiver),
        first_frame: c.first.frame,
        begins_ns: c.first.time.saturating_since(judged.begins).as_ns(),
        lasts_ns: c.last.time.saturating_since(c.first.time).as_ns(),
        begun: match c.start {
            Start::Syn { .. } => "syn",
            Start::Midway => "midway",
        }
        .to_owned(),
        ended: ended(c.end).to_owned(),
        active_ns: ns(passive.active),
        payload_bytes: side.unique_bytes,
        goodput_bits_per_second: passive.goodput.as_bits_per_second(),
        best_bits_per_second: passive.best.map(units::Rate::as_bits_per_second),
        lost_bytes: passive.lost.as_u64(),
        sentence: passive.verdict.sentence.clone(),
        cause: passive.verdict.cause.map(|cause| cause.name().to_owned()),
        confidence: passive.findings.first().map_or(0.0, |f| f.confidence),
        shares: passive
            .shares
            .iter()
            .map(|(limit, share)| TraceShare {
                limit: limit.name().to_owned(),
                share: *share,
            })
            .collect(),
        captured: side.capture_point.map(|at| {
            match at {
                CapturePoint::NearSender => "near_sender",
                CapturePoint::NearReceiver => "near_receiver",
                CapturePoint::Between => "between",
            }
            .to_owned()
        }),
        segment_bytes: side.segment_bytes,
        data_packets: side.data_segments,
        super_packets: side.super_packets,
        wire_segments: side.wire_segments,
        retransmissions: TraceRetransmissions {
            fast: r.fast.segments,
            timeout: r.timeout.segments,
            tail_probe: r.tail_probe.segments,
            other: r.other.segments,
            original_unseen: r.original_unseen.segments,
            spurious: r.spurious,
        },
        out_of_order: side.out_of_order,
        duplicate_acks: peer.duplicate_acks,
        zero_windows: peer.zero_windows,
        zero_window_ns: ns(peer.zero_window_time),
        handshake_ns: handshake.map(|(there, back)| ns(there + back)),
        rtt_min_ns: side
            .rtt_ahead
            .map(|ahead| ns(ahead + side.rtt_behind.unwrap_or_default())),
        rtt_median_ns: known(&peer.rtt_ack_ns).map(|s| s.median),
        rtt_max_ns: known(&peer.rtt_ack_ns).map(|s| s.max),
        flight_bytes_max: side.flight_bytes_max,
        flight_bytes_mean: side.flight_bytes_mean,
        window_bytes_median: peer.window_bytes.median,
        window_scaling: matches!(c.start, Start::Syn { .. })
            .then(|| both(|s| s.window_scale.is_some())),
        sack: c.sack,
        ce_packets: side.ce,
        spacing: None,
        slices: (number <= SLICED_MAX)
            .then(|| side.slices.as_ref().map(|s| slices(s, judged.begins)))
            .flatten(),
        graphs,
    }
}

fn known(spread: &Spread) -> Option<&Spread> {
    (spread.count > 0).then_some(spread)
}

fn slices(slices: &Slices, begins: Instant) -> TraceSlices {
    let of = |value: fn(&explain::trace::Slice) -> u64| slices.list.iter().map(value).collect();
    let main = |slice: &explain::trace::Slice| {
        let longest = Limit::ALL.iter().max_by_key(|l| slice.time(**l));
        let longest = longest.filter(|l| slice.time(**l) > Duration::ZERO);
        longest.map_or("", |l| l.name()).to_owned()
    };
    TraceSlices {
        begins_ns: slices.start.saturating_since(begins).as_ns(),
        width_ns: slices.width.as_ns(),
        sent_bytes: of(|s| s.sent_bytes),
        acked_bytes: of(|s| s.acked_bytes),
        retransmitted: slices
            .list
            .iter()
            .map(|s| s.retransmitted_segments)
            .collect(),
        rtt_ns: slices
            .list
            .iter()
            .map(|s| s.rtt_mean().map(Duration::as_ns))
            .collect(),
        flight_bytes: of(|s| u64::from(s.flight_bytes_max)),
        window_bytes: slices
            .list
            .iter()
            .map(|s| (s.window_bytes_min != u32::MAX).then(|| u64::from(s.window_bytes_min)))
            .collect(),
        limits: slices.list.iter().map(main).collect(),
    }
}

/// `192.0.2.1:5201` or `[2001:db8::1]:443`.
fn endpoint(flow: &FlowKey, side: usize) -> String {
    SocketAddr::new(ip(flow.addresses[side]), flow.ports[side]).to_string()
}

/// `192.0.2.1` or `2001:db8::1`.
fn address(octets: [u8; 16]) -> String {
    ip(octets).to_string()
}

fn ip(octets: [u8; 16]) -> IpAddr {
    let v6 = Ipv6Addr::from(octets);
    v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
}

const fn ended(end: End) -> &'static str {
    match end {
        End::Fin => "fin",
        End::Reset { .. } => "reset",
        End::Replaced => "replaced",
        End::Idle => "idle",
        End::Unanswered => "unanswered",
        End::Evicted => "evicted",
        _ => "open",
    }
}

/// Begins a run folder.
fn begin(args: &ExplainArgs, context: &Context, name: &str) -> Result<RunFolder, Failure> {
    let run = Run {
        schema_version: model::SCHEMA_VERSION,
        verb: "explain".to_owned(),
        name: name.to_owned(),
        state: RunState::Running,
        command_line: context.command_line.clone(),
        goodput_version: env!("CARGO_PKG_VERSION").to_owned(),
        started_utc: context.started_utc.clone(),
        ..Run::default()
    };
    RunFolder::create(&args.runs, "explain", name, run).map_err(Failure::here)
}

/// Writes the run folder, the one that was begun if there is one.
fn finish(
    args: &ExplainArgs,
    context: &Context,
    folder: Option<RunFolder>,
    trace: Trace,
    kept: &[Judged],
    findings: Vec<FindingRecord>,
) -> Result<Explained, Failure> {
    let name = trace
        .files
        .first()
        .map_or("", |f| f.name.as_str())
        .to_owned();
    let mut folder = match folder {
        Some(folder) => folder,
        None => begin(args, context, &name)?,
    };
    let mut run = Run {
        verdict: Some(verdict(&trace, kept)),
        trace: Some(trace),
        ..folder.run().clone()
    };
    record::end(&mut run);
    folder.finish(&run, &findings).map_err(Failure::here)?;
    Ok(Explained {
        run: folder.run().clone(),
        findings,
        folder: folder.path().to_owned(),
    })
}

/// The connection that lost most, or that there is none.
fn verdict(trace: &Trace, kept: &[Judged]) -> RunVerdict {
    let Some(first) = kept.first() else {
        return RunVerdict {
            sentence: match trace.tcp_packets {
                0 => "No TCP packets".to_owned(),
                _ => "No TCP connection with data".to_owned(),
            },
            ..RunVerdict::default()
        };
    };
    let v = &first.passive.verdict;
    let side = &first.connection.sides[usize::from(first.passive.sender)];
    let nearly_all = side.unique_bytes >= trace.payload_bytes - trace.payload_bytes / 20;
    let sentence = match trace.connections_with_data {
        _ if nearly_all => v.sentence.clone(),
        n => format!("{n} connections; the one that lost most: {}", v.sentence),
    };
    RunVerdict {
        sentence,
        cause: v.cause.map(|c| c.name().to_owned()),
        healthy: v.healthy,
        conclusive: v.conclusive,
        ..RunVerdict::default()
    }
}

/// Connections that a run keeps.
const KEPT_MAX: usize = 200;
/// Of these, with graphs; with slices.
const GRAPHED_MAX: usize = 8;
const SLICED_MAX: u32 = 20;
const COLUMNS: usize = 1_000;
const INTERFACES_MAX: usize = 64;
