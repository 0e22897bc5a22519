//! tshark on the same packets: gaps, bursts and sums of sections worked out from what it prints, by code
//! that shares nothing with ours but the definitions.
//!
//! Its packets are held against ours one by one: frame number, time and payload.

pub(crate) mod printed;
mod round_trips;

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use report::model::TraceObserver;
use units::Duration;
use wire::segment::{Decoded, FlowKey, Segment};

use self::printed::{Asked, MISSING, Way, nanoseconds};
use crate::input::Input;
use crate::spacing::{Counted, Question};
use fault::Failure;

/// Asks tshark, and compares.
pub(crate) fn tshark(
    files: &[Input],
    counted: &[Counted],
    question: &Question,
) -> Result<TraceObserver, Failure> {
    let version = Command::new("tshark")
        .arg("--version")
        .stderr(Stdio::null())
        .output()
        .map_err(|_| Failure::here(MISSING))?;
    let version = String::from_utf8_lossy(&version.stdout);
    let name = version.lines().next().unwrap_or("TShark");
    let name = name.replace("(Wireshark) ", "");
    let mut told = TraceObserver {
        tool: name.split(" (").next().unwrap_or("TShark").to_owned(),
        command: format!("tshark {}", PACKETS.arguments().join(" ")),
        ..TraceObserver::default()
    };
    for (number, file) in (0_u32..).zip(files) {
        let own: Vec<&Counted> = counted.iter().filter(|c| c.file == number).collect();
        if own.is_empty() {
            continue;
        }
        let Some(path) = file.one() else {
            return Err(Failure::usage(format!(
                "tshark is asked about one file at a time, and {} are read as one",
                file.name()
            )));
        };
        one_file(path, &own, question, &mut told)?;
    }
    told.agrees = told.packets > 0
        && told.packets_differ + told.gaps_differ + told.sections_differ + told.bursts_differ == 0;
    Ok(told)
}

/// A packet as both read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    frame: u64,
    time_ns: u64,
    payload_bytes: u32,
    /// Place of the connection, and whether its sender sent it.
    of: usize,
    ahead: bool,
}

/// The connection of a packet, and whether its sender sent it.
type Find<'f> = &'f dyn Fn(&Way, u64) -> Option<(usize, bool)>;

fn one_file(
    file: &Path,
    counted: &[&Counted],
    question: &Question,
    told: &mut TraceObserver,
) -> Result<(), Failure> {
    let mut ways: HashMap<Way, Vec<(usize, bool)>> = HashMap::new();
    for (of, one) in counted.iter().enumerate() {
        let FlowKey { addresses, ports } = one.key.1;
        let sender = usize::from(one.sender & 1);
        for ahead in [true, false] {
            let (a, b) = if ahead {
                (sender, 1 - sender)
            } else {
                (1 - sender, sender)
            };
            let way = (addresses[a], ports[a], addresses[b], ports[b]);
            ways.entry(way).or_default().push((of, ahead));
        }
    }
    let find = |way: &Way, frame: u64| {
        let of = ways.get(way)?;
        of.iter()
            .copied()
            .find(|(of, _)| counted[*of].frames.contains(&frame))
    };
    let ours = ours(file, counted, &find)?;
    let mut theirs: Vec<Sums> = counted
        .iter()
        .map(|one| Sums {
            limit: one.bursts.within(one.burst_limit(question.line)).limit,
            ..Sums::default()
        })
        .collect();
    let mut place = 0;
    PACKETS.read(file, |frame, way, [time, payload]| {
        let (Some(time_ns), Ok(payload_bytes)) = (nanoseconds(time), payload.parse()) else {
            return;
        };
        let Some((of, ahead)) = find(&way, frame) else {
            return;
        };
        let seen = Seen {
            frame,
            time_ns,
            payload_bytes,
            of,
            ahead,
        };
        told.packets += 1;
        // What only one of both has is one difference, not one for each that follows.
        while ours.get(place).is_some_and(|o| o.frame < frame) {
            place += 1;
            told.packets_differ += 1;
        }
        match ours.get(place) {
            Some(own) if own.frame == frame => {
                told.packets_differ += u64::from(*own != seen);
                place += 1;
            }
            _ => told.packets_differ += 1,
        }
        if let Some(sums) = theirs.get_mut(of) {
            sums.take(&seen, counted[of], question);
        }
    })?;
    told.packets_differ += (ours.len() - place) as u64;
    told.round_trips
        .extend(round_trips::of_file(file, counted, &find)?);
    for (of, (one, sums)) in counted.iter().zip(&theirs).enumerate() {
        sums.against(of, one, &ours, question, told);
    }
    Ok(())
}

/// Packets of the connections by our own reading.
fn ours(file: &Path, counted: &[&Counted], find: Find<'_>) -> Result<Vec<Seen>, Failure> {
    let mut all = Vec::new();
    let keys: HashMap<(u32, FlowKey), ()> = counted.iter().map(|c| (c.key, ())).collect();
    let mut capture = Input::file(file.to_owned()).open()?;
    capture.for_each_segment(|packet, decoded, segment: &Segment| {
        let flow = &segment.flow;
        if decoded == Decoded::Tcp && keys.contains_key(&(packet.interface, *flow)) {
            let (a, b) = (
                usize::from(segment.from & 1),
                usize::from(1 - (segment.from & 1)),
            );
            let way = (
                flow.addresses[a],
                flow.ports[a],
                flow.addresses[b],
                flow.ports[b],
            );
            if let Some((of, ahead)) = find(&way, packet.frame) {
                all.push(Seen {
                    frame: packet.frame,
                    time_ns: packet.time_ns,
                    payload_bytes: segment.payload_bytes,
                    of,
                    ahead,
                });
            }
        }
        match all.len() < PACKETS_MAX {
            true => std::ops::ControlFlow::Continue(()),
            false => std::ops::ControlFlow::Break(()),
        }
    });
    if all.len() == PACKETS_MAX {
        return Err(Failure::here(format!(
            "--observer compares {PACKETS_MAX} packets at most; choose fewer with editcap"
        )));
    }
    Ok(all)
}

/// What follows from a connection's packets as tshark printed them.
#[derive(Clone, Debug, Default)]
struct Sums {
    /// The longest gap within a burst.
    limit: Duration,
    last_ns: Option<u64>,
    gaps: Vec<u64>,
    /// Payload by length of the sections and their number.
    sections: HashMap<(usize, u64), u64>,
    bursts: u64,
    burst_packets: u64,
    longest: u64,
}

impl Sums {
    fn take(&mut self, seen: &Seen, one: &Counted, question: &Question) {
        if !seen.ahead || seen.payload_bytes == 0 {
            return;
        }
        let since = seen.time_ns.saturating_sub(one.begun.as_ns());
        for (which, length) in question.sections.iter().enumerate() {
            let section = since / length.as_ns();
            *self.sections.entry((which, section)).or_default() += u64::from(seen.payload_bytes);
        }
        let at = seen.time_ns.max(self.last_ns.unwrap_or(0));
        let gap = self.last_ns.map(|last| at - last);
        self.last_ns = Some(at);
        if let Some(gap) = gap {
            self.gaps.push(gap);
        }
        if gap.is_none_or(|gap| Duration::from_ns(gap) > self.limit) {
            self.bursts += 1;
            self.burst_packets = 0;
        }
        self.burst_packets += 1;
        self.longest = self.longest.max(self.burst_packets);
    }

    fn against(
        &self,
        of: usize,
        one: &Counted,
        ours: &[Seen],
        question: &Question,
        told: &mut TraceObserver,
    ) {
        let data = ours
            .iter()
            .filter(|s| s.of == of && s.ahead && s.payload_bytes > 0);
        let mut last: Option<u64> = None;
        let mut own = Vec::with_capacity(self.gaps.len());
        for seen in data {
            let at = seen.time_ns.max(last.unwrap_or(0));
            own.extend(last.map(|last| at - last));
            last = Some(at);
        }
        told.gaps += self.gaps.len() as u64;
        told.gap_sum_ns += self.gaps.iter().sum::<u64>();
        let differ = own.iter().zip(&self.gaps).filter(|(a, b)| a != b).count();
        told.gaps_differ += (differ + own.len().abs_diff(self.gaps.len())) as u64;
        for (which, sections) in one
            .sections
            .iter()
            .enumerate()
            .take(question.sections.len())
        {
            let Ok(sections) = sections else { continue };
            let theirs = |n: u64| self.sections.get(&(which, n)).copied().unwrap_or(0);
            let mine = (0..sections.len()).zip(0_u64..);
            let differ = mine.filter(|(n, s)| sections.bytes(*n, 0).as_u64() != theirs(*s));
            told.sections_differ += differ.count() as u64;
            told.sections += self.sections.keys().filter(|(w, _)| *w == which).count() as u64;
        }
        if one.burst_limit(question.line) > Duration::ZERO {
            let mine = one.bursts.within(one.burst_limit(question.line));
            told.bursts += self.bursts;
            let same = (mine.bursts, mine.longest_packets) == (self.bursts, self.longest);
            told.bursts_differ += u64::from(!same);
        }
    }
}

/// No analysis of its own, which costs memory.
const PACKETS: Asked<2> = Asked {
    preference: "tcp.analyze_sequence_numbers:false",
    fields: ["frame.time_epoch", "tcp.len"],
};
/// 40 B each.
const PACKETS_MAX: usize = 10_000_000;
