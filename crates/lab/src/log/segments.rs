//! The TCP segments of a log, in the order of time: each as it came in, as it left by a port, and what
//! lost it.
//!
//! Segments are as they were when they came in, also where a router rewrote them later. A segment with
//! bits turned over counts as lost: it arrives, and its receiver's kernel throws it away. Of a segment
//! that was doubled each copy counts. Left out: fragments, and what is not TCP.
//!
//! Frames' records and some 32 bytes for each arrival, departure and loss are kept in memory.

use std::ops::ControlFlow;

use link::record::{Code, Reader};
use wire::capture::LinkType;
use wire::segment::{Decoded, Segment, decode};

use super::contents::Contents;
use super::convert::Converted;
use super::headers::Workbench;
use super::legend::Legend;

/// A log's segments.
#[derive(Debug)]
pub struct Segments<'a> {
    contents: Contents<'a>,
    events: Vec<Event>,
    reasons: Vec<Reason>,
}

/// Something that happened to a segment.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// When, by the realtime clock as it stood when the log began.
    pub time_ns: u64,
    /// Number of its frame.
    pub frame: u64,
    /// What it says.
    pub segment: &'a Segment,
    /// What happened.
    pub fate: Fate,
}

/// What happens to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It came in at this port.
    Came(u16),
    /// It was lost, for the reason of that number in [`Segments::reasons`].
    Lost(u16),
    /// It left by this port.
    Left(u16),
}

/// Why and where segments were lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The decision.
    pub code: Code,
    /// Its name.
    pub decision: String,
    /// Name of the link, or the link that leads to the node that decided.
    pub link: String,
    /// Its stage.
    pub stage: String,
}

/// A run of segments of one frame with one fate.
#[derive(Clone, Copy, Debug)]
struct Event {
    time_ns: u64,
    time_step_fs: u64,
    fate: Fate,
    first: u16,
    count: u16,
    /// Place among the contents' frames.
    frame: u32,
}

impl<'a> Segments<'a> {
    /// Reads a log.
    pub fn read(reader: Reader<'a>) -> Self {
        let contents = Contents::read(reader);
        let legend = &contents.legend;
        let mut events = Vec::new();
        let mut reasons: Vec<(Code, u16, u8)> = Vec::new();
        for (place, frame) in (0_u32..).zip(contents.frames()) {
            events.push(Event {
                time_ns: frame.time.as_ns(),
                time_step_fs: 0,
                fate: Fate::Came(frame.port),
                first: 0,
                count: frame.segments.max(1),
                frame: place,
            });
        }
        let ports: Vec<Option<u16>> = legend
            .links
            .iter()
            .map(|link| {
                let mut ports = (0_u16..).zip(&legend.ports);
                ports.find(|(_, name)| **name == link.to).map(|(n, _)| n)
            })
            .collect();
        for row in contents.rows() {
            let is_lost = row.decision.is_drop() || row.decision == Code::CORRUPTED;
            let fate = if is_lost {
                let reason = (row.decision, row.link, row.stage);
                let known = reasons.iter().position(|r| *r == reason);
                let number = known.unwrap_or_else(|| {
                    if reasons.len() < REASONS_MAX {
                        reasons.push(reason);
                    }
                    reasons.len() - 1
                });
                Fate::Lost(u16::try_from(number).unwrap_or(u16::MAX))
            } else if row.decision == Code::DELIVERED {
                let port = ports.get(usize::from(row.link)).copied().flatten();
                let Some(port) = port else { continue };
                Fate::Left(port)
            } else {
                continue;
            };
            let Some(frame) = contents.place(row.frame) else {
                continue;
            };
            let time = match row.decision {
                Code::DELIVERED if row.departs != units::Instant::MAX => row.departs,
                _ => row.time,
            };
            events.push(Event {
                time_ns: time.as_ns(),
                time_step_fs: row.time_step_fs,
                fate,
                first: row.first,
                count: row.count,
                frame,
            });
        }
        // Of one instant: came, lost, left, as they do.
        events.sort_by_key(|e| (e.time_ns, e.fate));
        let name = |(code, link, stage): (Code, u16, u8)| Reason {
            code,
            decision: legend.decision(code).into_owned(),
            link: legend.link(link).unwrap_or_default().into_owned(),
            stage: legend.stage(link, stage).unwrap_or_default().into_owned(),
        };
        let reasons = reasons.into_iter().map(name).collect();
        Self {
            contents,
            events,
            reasons,
        }
    }

    /// Hands over every TCP segment's arrivals, losses and departures until `each` breaks off.
    pub fn for_each(&self, mut each: impl FnMut(&Seen<'_>) -> ControlFlow<()>) {
        let zero = self.contents.legend.t0_realtime_ns;
        let mut bench = Workbench::new();
        let mut segment = Segment::default();
        for event in &self.events {
            let Some(frame) = usize::try_from(event.frame)
                .ok()
                .and_then(|place| self.contents.frames().get(place))
            else {
                continue;
            };
            let mut loaded = bench.load(frame);
            let end = event.first.saturating_add(event.count);
            for k in event.first..end.min(loaded.segments()) {
                let bytes = loaded.segment_bytes(k);
                let head = loaded.segment_head(k);
                if decode(LinkType::ETHERNET, head, bytes, &mut segment) != Decoded::Tcp {
                    // Its others are none either.
                    break;
                }
                let steps = u128::from(event.time_step_fs) * u128::from(k - event.first);
                let later = u64::try_from(steps / FS_PER_NS).unwrap_or(u64::MAX);
                let seen = Seen {
                    time_ns: zero.saturating_add(event.time_ns).saturating_add(later),
                    frame: frame.number,
                    segment: &segment,
                    fate: event.fate,
                };
                if each(&seen).is_break() {
                    return;
                }
            }
        }
    }

    /// Why segments were lost.
    pub fn reasons(&self) -> &[Reason] {
        &self.reasons
    }

    /// What the numbers of ports and links stand for.
    pub const fn legend(&self) -> &Legend {
        &self.contents.legend
    }

    /// How far the log can be trusted.
    pub fn trusted(&self) -> Converted {
        Converted::of(&self.contents)
    }

    /// Frames in it.
    pub fn frames(&self) -> u64 {
        self.contents.frames().len() as u64
    }
}

/// More than any lab has; what is beyond counts as the last one.
const REASONS_MAX: usize = 1_024;
/// Femtoseconds in a nanosecond.
const FS_PER_NS: u128 = 1_000_000;
