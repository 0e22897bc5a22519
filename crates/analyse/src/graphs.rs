//! Time-sequence graphs of the connections that lost most: one more look at their files.

use std::cmp::Reverse;
use std::ops::{ControlFlow, RangeInclusive};
use std::path::Path;

use explain::timeline::{Column, Timeline};
use explain::trace::Start;
use fault::Failure;
use report::model::TraceGraph;
use units::{Duration, Instant};
use wire::segment::{Decoded, FlowKey, Segment};

use crate::input::Input;
use crate::logs;
use crate::ranking::Judged;

/// A graph to be drawn: of which connection, and what.
struct Wanted {
    /// Place among the connections.
    of: usize,
    title: &'static str,
    timeline: Timeline,
    /// Frames of the connection: another one may have the same ports.
    frames: RangeInclusive<u64>,
}

/// The graphs of each connection, in their order; none of standard input.
pub(crate) fn graphs(
    files: &[Input],
    kept: &[Judged],
    is_stopped: &dyn Fn() -> bool,
) -> Result<Vec<Vec<TraceGraph>>, Failure> {
    let mut all: Vec<Vec<TraceGraph>> = kept.iter().map(|_| Vec::new()).collect();
    for (n, input) in files.iter().enumerate() {
        let drawn = kept.iter().enumerate().take(GRAPHED_MAX);
        // So few that looking at each takes less time than a hash.
        let mut wanted: Vec<((u32, FlowKey), Wanted)> = Vec::new();
        for (of, judged) in drawn.filter(|(_, j)| usize::try_from(j.file) == Ok(n)) {
            let key = (judged.connection.interface, judged.connection.flow);
            wanted.extend(windows(of, judged).into_iter().map(|graph| (key, graph)));
        }
        let last = wanted.iter().map(|(_, graph)| *graph.frames.end()).max();
        if wanted.is_empty() || input.path() == Path::new("-") || logs::is_log(input.path()) {
            continue;
        }
        let mut capture = input.open()?;
        capture.for_each_segment(|packet, decoded, segment: &Segment| {
            if decoded == Decoded::Tcp {
                let key = (packet.interface, segment.flow);
                let graphs = wanted.iter_mut().filter(|(of, _)| *of == key);
                for (_, graph) in graphs.filter(|(_, g)| g.frames.contains(&packet.frame)) {
                    graph
                        .timeline
                        .take(Instant::from_ns(packet.time_ns), segment);
                }
            }
            if is_stopped() || last.is_some_and(|last| packet.frame >= last) {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        for (_, graph) in wanted {
            let begins = kept[graph.of].begins;
            all[graph.of].push(drawn_graph(&graph, begins));
        }
    }
    Ok(all)
}

/// The whole connection; its begin; and around the slice with most retransmissions.
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
            "Around most retransmissions",
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
    let marks = |of: fn(&Column) -> Option<(u64, u64)>| {
        let all = columns.iter().enumerate();
        all.filter_map(|(n, c)| of(c).map(|(low, high)| (number(n), low, high)))
            .collect::<Vec<_>>()
    };
    let changes = |of: fn(&Column) -> Option<u64>| {
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

/// Connections with graphs.
const GRAPHED_MAX: usize = 8;
const COLUMNS: usize = 1_000;
