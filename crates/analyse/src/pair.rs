//! Two captures of the two ends as one: found by the packets that both hold, or asked for.

mod nat;

use std::ops::ControlFlow;

use capture::file::Capture;
use explain::one_way::Delays;
use explain::pairing::{
    self, Anchors, DelayFacts, Limits, Lost, Names, Paired, PairedConnection, Pairing, Place,
    Point, Translations, WayFacts,
};
use report::model::{
    FindingRecord, TraceClock, TraceDelay, TraceLoss, TracePair, TracePairConnection, TracePairWay,
};
use throughput::{Cause, Finding};
use units::Instant;
use wire::segment::{Decoded, Segment};

use crate::input::Input;
use crate::logs::LogFacts;
use crate::names::endpoint;
use crate::plan::Match;
use fault::Failure;
use job::{Context, record};

/// Matches the two captures, where there are two of one path.
pub(crate) fn run(
    matching: Match,
    files: &[Input],
    logs: &[LogFacts],
    context: &Context,
) -> Result<Option<(TracePair, Vec<FindingRecord>)>, Failure> {
    let wanted = matching == Match::Always;
    let is_log = |n: usize| logs.iter().any(|l| usize::try_from(l.facts.file) == Ok(n));
    let captures: Vec<(usize, &Input)> = files
        .iter()
        .enumerate()
        .filter(|(n, _)| !is_log(*n))
        .collect();
    let [near, far] = captures.as_slice() else {
        return match wanted {
            true => Err(refused("--match always takes two captures")),
            false => Ok(None),
        };
    };
    let is_input = [near, far].iter().any(|c| c.1.path().as_os_str() == "-");
    if is_input && wanted {
        return Err(refused(
            "standard input cannot be matched: it is read once only",
        ));
    }
    if is_input || matching == Match::Never {
        return Ok(None);
    }
    let [(near_anchors, near_names), (far_anchors, far_names)] =
        [first_look(near.1, context)?, first_look(far.1, context)?];
    let translations = near_names.translations(&far_names);
    let names = [near.1.name(), far.1.name()];
    let ahead_ns = match near_anchors.common(&far_anchors) {
        Some(common) if wanted || !common.is_one_capture => common.ahead_ns,
        None if !translations.list().is_empty() => translations.ahead_ns(),
        None if wanted => {
            return Err(refused(&format!(
                "{} and {} have no packet in common, nor the same connections under other addresses: they are \
                 of other connections or times",
                names[0], names[1]
            )));
        }
        _ => return Ok(None),
    };
    let mut paired = matched([near.1, far.1], ahead_ns, &translations, context)?;
    for log in logs {
        pairing::attach(&mut paired, &log.drops);
    }
    let reason = |loss: &Lost| {
        let log = logs.first()?;
        loss.reason.map(|r| log.words(r).to_owned())
    };
    let mut pair = described(&paired, [near.0, far.0], &names, &reason);
    nat::tell(&mut pair, &paired, &translations, &names);
    let findings = findings(&pair, &paired, &names, logs);
    Ok(Some((pair, findings)))
}

fn refused(why: &str) -> Failure {
    Failure::usage(why)
}

fn first_look(input: &Input, context: &Context) -> Result<(Anchors, Names), Failure> {
    let (mut anchors, mut names) = (Anchors::default(), Names::default());
    let mut capture = input.open()?;
    let read_all = capture.for_each_segment(|packet, decoded, segment| {
        if decoded == Decoded::Tcp {
            let time = Instant::from_ns(packet.time_ns);
            anchors.take(time, segment);
            names.take(time, segment);
        }
        match context.stop.is_stopped() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    if read_all {
        return Ok((anchors, names));
    }
    Err(Failure::interrupted(context.interrupted().unwrap_or(130)))
}

fn matched(
    inputs: [&Input; 2],
    ahead_ns: i64,
    translations: &Translations,
    context: &Context,
) -> Result<Paired, Failure> {
    let mut captures = [inputs[0].open()?, inputs[1].open()?];
    let mut pairing = Pairing::new(Limits::default(), ahead_ns, SEED);
    let mut segment = Segment::default();
    while let Some(point) = pairing.next() {
        let capture = &mut captures[usize::from(point == Point::Far)];
        match next(capture, &mut segment) {
            Some((time, frame)) => {
                if point == Point::Far {
                    translations.apply(&mut segment);
                }
                pairing.take(point, time, frame, &segment);
            }
            None => pairing.end(point),
        }
        if context.stop.is_stopped() {
            return Err(Failure::interrupted(context.interrupted().unwrap_or(130)));
        }
    }
    Ok(pairing.finish())
}

/// The next TCP packet.
fn next(capture: &mut Capture, segment: &mut Segment) -> Option<(Instant, u64)> {
    while let Some((packet, decoded)) = capture.next_segment(segment) {
        if decoded == Decoded::Tcp {
            return Some((Instant::from_ns(packet.time_ns), packet.frame));
        }
    }
    None
}

fn described(
    paired: &Paired,
    files: [usize; 2],
    names: &[String; 2],
    reason: &dyn Fn(&Lost) -> Option<String>,
) -> TracePair {
    let sum = |of: fn(&WayFacts) -> u64| -> u64 {
        paired
            .connections
            .iter()
            .flat_map(|c| &c.ways)
            .map(of)
            .sum()
    };
    let mut room = LOSSES_MAX;
    let kept = paired.connections.iter().take(CONNECTIONS_MAX);
    TracePair {
        files: files
            .iter()
            .map(|f| u32::try_from(*f).unwrap_or(u32::MAX))
            .collect(),
        sentence: sentence(paired, names),
        packets: paired.packets.to_vec(),
        matched: paired.matched.to_vec(),
        clock: paired.clocks.map(|c| TraceClock {
            offset_ns: c.offset_ns.value,
            offset_uncertainty_ns: c.offset_ns.uncertainty,
            drift_ppm: c.drift_ppm.map(|d| d.value),
            drift_uncertainty_ppm: c.drift_ppm.map(|d| d.uncertainty),
            steps: c.steps,
            round_trip_min_ns: c.round_trip_min_ns,
        }),
        delays: [("far", paired.delays[0]), ("near", paired.delays[1])]
            .into_iter()
            .filter_map(|(to, facts)| Some(delay(to, &facts?)))
            .collect(),
        lost_before: sum(|w| w.before.segments),
        lost_between: sum(|w| w.between.segments),
        lost_behind: sum(|w| w.behind.segments),
        spurious: sum(|w| w.spurious.segments),
        not_captured: sum(|w| w.unseen_first.segments + w.unseen_second.segments),
        not_judged: sum(|w| w.unjudged.segments),
        control_lost: sum(|w| w.control_lost),
        connections: kept.map(|c| connection(c, reason, &mut room)).collect(),
        packets_left_out: paired.connections_left_out,
        ..TracePair::default()
    }
}

fn connection(
    c: &PairedConnection,
    reason: &dyn Fn(&Lost) -> Option<String>,
    room: &mut usize,
) -> TracePairConnection {
    let near = usize::from(c.near_side & 1);
    let ways = c.ways.iter().filter(|w| w.packets != [0; 2]);
    TracePairConnection {
        near_end: endpoint(&c.flow, near),
        far_end: endpoint(&c.flow, 1 - near),
        side_assumed: c.is_side_assumed,
        translated_ends: None,
        first_frames: c.first_frames.to_vec(),
        ways: ways.map(|w| way(w, reason, room)).collect(),
    }
}

fn way(w: &WayFacts, reason: &dyn Fn(&Lost) -> Option<String>, room: &mut usize) -> TracePairWay {
    let to = if w.first == 0 { "far" } else { "near" };
    let mut not_captured = vec![w.unseen_first.segments, w.unseen_second.segments];
    if w.first == 1 {
        not_captured.reverse();
    }
    let kept = w.losses.iter().take(*room);
    let losses: Vec<TraceLoss> = kept
        .map(|loss| TraceLoss {
            place: match loss.place {
                Place::Before => "before",
                Place::Between => "between",
                Place::After => "behind",
            }
            .to_owned(),
            sequence: loss.sequence,
            bytes: loss.bytes,
            segments: loss.segments,
            frames: loss.frames.to_vec(),
            repeat: loss.repeat.map(|r| r.to_vec()),
            reason: reason(loss),
        })
        .collect();
    *room -= losses.len();
    TracePairWay {
        to: to.to_owned(),
        packets: w.packets.to_vec(),
        matched: w.matched.to_vec(),
        bytes: w.bytes,
        lost_before: w.before.segments,
        lost_between: w.between.segments,
        lost_behind: w.behind.segments,
        spurious: w.spurious.segments,
        not_captured,
        not_judged: w.unjudged.segments,
        control_lost: w.control_lost,
        duplicates: w.duplicates.to_vec(),
        delay: w.delays.map(|facts| delay(to, &facts)),
        losses,
    }
}

fn delay(to: &str, facts: &DelayFacts) -> TraceDelay {
    let Delays {
        min_ns,
        median_ns,
        p99_ns,
        max_ns,
    } = facts.delays;
    TraceDelay {
        to: to.to_owned(),
        packets: facts.packets,
        min_ns,
        median_ns,
        p99_ns,
        max_ns,
    }
}

/// `12 of 14 lost segments were lost between near.pcapng and far.pcapng, 2 before near.pcapng`.
fn sentence(paired: &Paired, [near, far]: &[String; 2]) -> String {
    if paired.connections.is_empty() {
        return format!("{near} and {far} have no connection in common");
    }
    let sum = |first: usize, of: fn(&WayFacts) -> u64| -> u64 {
        let ways = paired.connections.iter().flat_map(|c| &c.ways);
        ways.filter(|w| w.first == first).map(of).sum()
    };
    let [before, between, behind] = [
        |w: &WayFacts| w.before.segments,
        |w: &WayFacts| w.between.segments,
        |w: &WayFacts| w.behind.segments,
    ];
    let all: u64 = [0, 1].map(|first| sum(first, WayFacts::lost)).iter().sum();
    let mut places = [
        (
            sum(0, between) + sum(1, between),
            format!("between {near} and {far}"),
        ),
        (sum(0, before), format!("before {near}")),
        (sum(0, behind), format!("behind {far}")),
        (sum(1, before), format!("before {far}, on the way back")),
        (sum(1, behind), format!("behind {near}, on the way back")),
    ];
    places.sort_by_key(|(n, _)| std::cmp::Reverse(*n));
    let lost: Vec<&(u64, String)> = places.iter().filter(|(n, _)| *n > 0).collect();
    let spurious = sum(0, |w| w.spurious.segments) + sum(1, |w| w.spurious.segments);
    let needless = match spurious {
        0 => String::new(),
        n => format!("; {n} spurious retransmissions"),
    };
    let Some(((first, place), others)) = lost.split_first() else {
        return format!("No segment was lost between {near} and {far}, nor elsewhere{needless}");
    };
    let mut text = format!(
        "{first} of {all} lost {} lost {place}",
        if all == 1 {
            "segments was"
        } else {
            "segments were"
        }
    );
    for (n, place) in others {
        text += &format!(", {n} {place}");
    }
    text + &needless
}

/// Where segments were lost, as a finding, where they were.
fn findings(
    pair: &TracePair,
    paired: &Paired,
    names: &[String; 2],
    logs: &[LogFacts],
) -> Vec<FindingRecord> {
    let losses = || {
        paired
            .connections
            .iter()
            .flat_map(|c| &c.ways)
            .flat_map(|w| &w.losses)
    };
    if pair.lost_before + pair.lost_between + pair.lost_behind == 0 {
        return Vec::new();
    }
    let mut evidence: Vec<String> = Vec::new();
    for loss in losses().take(PROOFS_MAX) {
        let seen: Vec<String> = loss
            .frames
            .iter()
            .zip(names)
            .filter_map(|(frame, name)| Some(format!("frame {} of {name}", (*frame)?)))
            .collect();
        let place = match loss.place {
            Place::Before => "lost before, retransmitted as",
            Place::Between => "lost between",
            Place::After => "lost behind, retransmitted as",
        };
        let repeat = loss.repeat.map_or_else(String::new, |[near, far]| {
            format!(
                ", came through as frame {near} of {} and {far} of {}",
                names[0], names[1]
            )
        });
        evidence.push(format!("{place}: {}{repeat}", seen.join(", ")));
    }
    let mut reasons: Vec<(u16, u64)> = Vec::new();
    for loss in losses() {
        let Some(reason) = loss.reason else { continue };
        match reasons.iter_mut().find(|(r, _)| *r == reason) {
            Some((_, n)) => *n += loss.reason_segments,
            None => reasons.push((reason, loss.reason_segments)),
        }
    }
    if let Some(log) = logs.first() {
        for (reason, n) in reasons.iter().take(PROOFS_MAX) {
            evidence.push(format!(
                "the lab dropped {n} of them: {}",
                log.words(*reason)
            ));
        }
    }
    let finding = Finding {
        cause: Cause::Loss,
        title: pair.sentence.clone(),
        confidence: 1.0,
        share: 0.0,
        evidence,
        remedy: None,
    };
    vec![record::finding("pair", &finding)]
}

/// Connections in the report, and losses of all of them together.
const CONNECTIONS_MAX: usize = 200;
const LOSSES_MAX: usize = 1_000;
const PROOFS_MAX: usize = 5;
/// Of the samples that delays are taken from.
const SEED: u64 = 1;
