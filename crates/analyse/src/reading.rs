//! One capture read to its end, and what its file says of itself.

use std::ops::ControlFlow;

use capture::file::{self, Capture};
use fault::Failure;
use job::{Context, record};
use report::model::{Trace, TraceFile};

use crate::feed;
use crate::input::Input;
use crate::ranking::Ranking;

/// Reads one capture to its end.
pub(crate) fn read(
    input: &Input,
    number: u32,
    threads: Option<usize>,
    trace: &mut Trace,
    best: &mut Ranking,
    context: &Context,
) -> Result<TraceFile, Failure> {
    let mut capture = input.open()?;
    let fed = feed::analyse(number, threads, trace, best, |feed| {
        capture.for_each_segment(|packet, decoded, segment| {
            feed.take(
                packet.time_ns,
                packet.frame,
                packet.interface,
                decoded,
                segment,
            );
            match context.stop.is_stopped() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
    })?;
    if context.stop.is_stopped() {
        return Err(Failure::interrupted(context.interrupted().unwrap_or(130)));
    }
    if let (0, Some(end @ (file::End::Stopped(_) | file::End::Failed { .. }))) =
        (fed.frames, capture.end())
    {
        let name = input.path().display();
        return Err(Failure::usage(format!("{name}: {end}")));
    }
    feed::count(trace, capture.decoder());
    let name = input.name();
    trace.notes.extend(fed.faults.notes(&name));
    Ok(described(name, &capture, fed.frames, fed.begins, fed.last))
}

pub(crate) fn described(
    name: String,
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
        name,
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

const INTERFACES_MAX: usize = 64;
