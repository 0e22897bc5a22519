//! One connection in the schema of a run folder.

use explain::passive::Passive;
use explain::trace::{Connection, End, Limit, SideFacts, Slices, Spread, Start};
use job::record;
use report::model::{
    FindingRecord, TraceConnection, TraceGraph, TraceRetransmissions, TraceShare, TraceSlices,
    TraceTurns,
};
use units::{Duration, Instant, Rate};

use crate::names::{captured, ended, endpoint};
use crate::ranking::Judged;

pub(crate) fn finding_records(judged: &Judged, number: u32) -> Vec<FindingRecord> {
    let phase = number.to_string();
    let records = judged.passive.findings.iter();
    records.map(|f| record::finding(&phase, f)).collect()
}

pub(crate) fn connection(
    judged: &Judged,
    number: u32,
    mut graphs: Vec<TraceGraph>,
) -> TraceConnection {
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
    let ns = |d: Duration| d.as_ns();
    let behind = side.rtt_behind.map_or(0, ns);
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
        reset_by: match c.end {
            End::Reset { by } => Some(endpoint(&c.flow, usize::from(by.min(1)))),
            _ => None,
        },
        payload_bytes: side.unique_bytes,
        reverse_payload_bytes: peer.unique_bytes,
        goodput_bits_per_second: passive.goodput.as_bits_per_second(),
        best_bits_per_second: passive.best.map(Rate::as_bits_per_second),
        lost_bytes: passive.lost.as_u64(),
        sentence: passive.verdict.sentence.clone(),
        cause: passive.verdict.cause.map(|cause| cause.name().to_owned()),
        confidence: passive.findings.first().map_or(0.0, |f| f.confidence),
        shares: shares(passive),
        notes: passive.notes.clone(),
        turns: turns(c),
        captured: side.capture_point.map(|at| captured(at).to_owned()),
        segment_bytes: side.segment_bytes,
        data_packets: side.data_segments,
        super_packets: side.super_packets,
        wire_segments: side.wire_segments,
        retransmissions: retransmissions(side),
        out_of_order: side.out_of_order,
        duplicate_acks: peer.duplicate_acks,
        zero_windows: peer.zero_windows,
        zero_window_ns: ns(peer.zero_window_time),
        handshake_ns: handshake.map(|(there, back)| ns(there + back)),
        rtt_min_ns: side
            .rtt_ahead
            .filter(|_| c.last.time > c.first.time)
            .map(|ahead| ns(ahead + side.rtt_behind.unwrap_or_default())),
        rtt_median_ns: known(&peer.rtt_ack_ns).map(|s| s.median + behind),
        rtt_max_ns: known(&peer.rtt_ack_ns).map(|s| s.max + behind),
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

fn shares(passive: &Passive) -> Vec<TraceShare> {
    let each = passive.shares.iter().map(|(waited, share)| TraceShare {
        limit: waited.name().to_owned(),
        share: *share,
    });
    each.collect()
}

/// What both sides did in turns; `None` where only one sent.
fn turns(c: &Connection) -> Option<TraceTurns> {
    let client = usize::from(c.client());
    let [asked, answered] = [client, 1 - client].map(|s| c.turns(s));
    (asked.messages > 0 && answered.messages > 0).then(|| TraceTurns {
        client: endpoint(&c.flow, client),
        requests: asked.messages,
        answers: answered.messages,
        request_bytes_median: asked.message_bytes.median,
        answer_bytes_median: answered.message_bytes.median,
        request_bytes: c.sides[client].unique_bytes,
        answer_bytes: c.sides[1 - client].unique_bytes,
        client_ns: asked.thinking.as_ns(),
        server_ns: answered.thinking.as_ns(),
        server_ns_median: answered.thinking_ns.median,
        on_path_ns: (asked.on_path + answered.on_path).as_ns(),
    })
}

fn retransmissions(side: &SideFacts) -> TraceRetransmissions {
    let r = &side.retransmissions;
    TraceRetransmissions {
        fast: r.fast.segments,
        timeout: r.timeout.segments,
        tail_probe: r.tail_probe.segments,
        other: r.other.segments,
        original_unseen: r.original_unseen.segments,
        spurious: r.spurious,
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

/// Connections with slices.
const SLICED_MAX: u32 = 20;
